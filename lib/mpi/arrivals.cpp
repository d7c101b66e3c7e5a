#include "mpi/arrivals.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "mpi/roll.h"

namespace argosy::mpi {
namespace {

namespace fs = std::filesystem;

std::set<int> numbers_in(const fs::path& folder) {
    std::set<int> numbers;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename();
        int number = 0;
        const auto [rest, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
        if (failed == std::errc() && rest == name.data() + name.size()) numbers.insert(number);
    }
    return numbers;
}

}  // namespace

void arrive(const Environment::Start& start) {
    if (start.arrivals.empty() || start.rank < 0) return;
    // Creating the file may fail: messages name fewer ranks then, and jobs/common.sh waits 30 s before it
    // passes a signal on.
    std::ofstream(fs::path(start.arrivals) / std::to_string(start.rank));
}

MissingRanks missing_at_start(const Environment::Start& start) {
    const std::set<int> arrived = numbers_in(start.arrivals);
    MissingRanks absence;
    std::vector<int> missing;
    for (int rank = 0; !arrived.empty() && rank < start.num_ranks; ++rank) {
        if (!arrived.contains(rank)) missing.push_back(rank);
    }
    if (!missing.empty()) absence.words = named_missing(missing);
    absence.first_speaks = !arrived.empty() && *arrived.begin() != start.rank;
    return absence;
}

}  // namespace argosy::mpi
