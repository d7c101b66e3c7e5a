#include "preflight/gather.h"

#include <algorithm>

namespace argosy::preflight {
namespace {

template <class T>
std::vector<T> gather(const mpi::Comm& world, const bench::RollCall& roll, const std::vector<T>& own,
                      mpi::Type type, double timeout_seconds) {
    std::vector<T> all(own.size() * world.size());
    if (!bench::finished_within(world.all_gather(all.data(), own.data(), own.size(), type),
                                timeout_seconds)) {
        throw roll.late("putting together what the ranks found");
    }
    return all;
}

}  // namespace

std::vector<double> gather_numbers(const mpi::Comm& world, const bench::RollCall& roll, double own,
                                   double timeout_seconds) {
    return gather<double>(world, roll, {own}, mpi::Type::Float64, timeout_seconds);
}

std::vector<std::string> gather_texts(const mpi::Comm& world, const bench::RollCall& roll,
                                      const std::string& own, double timeout_seconds) {
    const auto lengths = gather_numbers(world, roll, static_cast<double>(own.size()), timeout_seconds);
    const auto longest = static_cast<size_t>(*std::ranges::max_element(lengths));
    std::vector<char> padded(std::max<size_t>(longest, 1));
    std::ranges::copy(own, padded.begin());
    const auto all = gather<char>(world, roll, padded, mpi::Type::Byte, timeout_seconds);
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < lengths.size(); ++rank) {
        texts.emplace_back(all.data() + rank * padded.size(), static_cast<size_t>(lengths[rank]));
    }
    return texts;
}

}  // namespace argosy::preflight
