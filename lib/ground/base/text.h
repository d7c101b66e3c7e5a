// Lists and scores in messages, and the word that a user meant by an unknown one.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace argosy {

/// "a, b, c" or, if there are more than `max_named` items, "a, b and 7 more".
template <class Items>
std::string listed(const Items& items, size_t max_named = 16) {
    const size_t num_items = std::size(items), num_named = std::min(num_items, max_named);
    const std::string named = fmt::format("{}", fmt::join(items.begin(), items.begin() + num_named, ", "));
    return num_named < num_items ? fmt::format("{} and {} more", named, num_items - num_named) : named;
}

/// A score with four places, as lm-evaluation-harness shows it: 0.4321. A perplexity may have hundreds of
/// digits, so it has an exponent from 1e7 on.
inline std::string score_text(double value) {
    constexpr double kMaxPlain = 1e7;
    return std::abs(value) < kMaxPlain ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
}

/// The number of letters to insert, remove or replace, and of neighbours to swap, to turn one word into the
/// other.
int edit_distance(std::string_view one, std::string_view other);

/// The candidate ("section.name", or a bare name) nearest to `word`; the right name in a wrong section counts
/// as near. Empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace argosy
