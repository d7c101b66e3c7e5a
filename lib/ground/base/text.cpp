#include "base/text.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace argosy {
namespace {

std::pair<std::string_view, std::string_view> split(std::string_view key) {
    const std::size_t dot = key.rfind('.');  // a section's name may have dots
    if (dot == std::string_view::npos) return {"", key};
    return {key.substr(0, dot), key.substr(dot + 1)};
}

/// Compares names first; the section decides between equal distances.
std::pair<int, int> distance(std::string_view one, std::string_view other) {
    const auto [section, name] = split(one);
    const auto [other_section, other_name] = split(other);
    return {edit_distance(name, other_name), edit_distance(section, other_section)};
}

}  // namespace

int edit_distance(std::string_view one, std::string_view other) {
    // Each row has the distances from the letters of `one` seen so far to the first j letters of `other`.
    std::vector<int> before, last, row(other.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < one.size(); ++i) {
        before = std::exchange(last, row);
        row[0] = static_cast<int>(i) + 1;
        for (std::size_t j = 0; j < other.size(); ++j) {
            row[j + 1] = std::min({last[j] + (one[i] != other[j]), row[j] + 1, last[j + 1] + 1});
            const bool swapped = i > 0 && j > 0 && one[i] == other[j - 1] && one[i - 1] == other[j];
            if (swapped) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
        }
    }
    return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    const auto best = std::ranges::min_element(candidates, [&](const auto& one, const auto& other) {
        return distance(word, one) < distance(word, other);
    });
    if (best == candidates.end()) return "";
    // A guess at a larger distance would be random. "seq_length" is three letters from "seq_len".
    const int limit = std::max<int>(1, static_cast<int>(split(word).second.size()) / 3);
    return distance(word, *best).first <= limit ? *best : "";
}

}  // namespace argosy
