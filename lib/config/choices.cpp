#include "config/choices.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace argosy::config {
namespace {

std::pair<std::string_view, std::string_view> split(std::string_view key) {
    const std::size_t dot = key.find('.');
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
    std::vector<int> row(other.size() +
                         1);  // row[j]: from the letters of `one` seen so far to the first j of `other`
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < one.size(); ++i) {
        int diagonal = std::exchange(row[0], static_cast<int>(i) + 1);
        for (std::size_t j = 0; j < other.size(); ++j) {
            const int replaced = diagonal + (one[i] != other[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

std::string nearest(std::string_view key, const std::vector<std::string>& candidates) {
    const auto best = std::ranges::min_element(candidates, [&](const auto& one, const auto& other) {
        return distance(key, one) < distance(key, other);
    });
    if (best == candidates.end()) return "";
    // A larger distance would make the guess random. "seq_length" is three letters from "seq_len".
    const int limit = std::max<int>(1, static_cast<int>(split(key).second.size()) / 3);
    return distance(key, *best).first <= limit ? *best : "";
}

}  // namespace argosy::config
