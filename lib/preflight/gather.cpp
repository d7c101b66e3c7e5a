#include "preflight/gather.h"

#include <algorithm>

namespace argosy::preflight {

std::vector<std::string> gather_texts(const bench::RollCall& roll, const std::string& own) {
    const std::vector<size_t> lengths = roll.exchange(own.size());
    std::string padded = own;
    padded.resize(*std::ranges::max_element(lengths));
    const std::vector<char> all = roll.exchange_several(std::span<const char>(padded));
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < lengths.size(); ++rank) {
        texts.emplace_back(all.data() + rank * padded.size(), lengths[rank]);
    }
    return texts;
}

}  // namespace argosy::preflight
