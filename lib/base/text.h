// Lists in messages.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

namespace argosy {

/// "a, b, c" or, if there are more than `max_named` items, "a, b and 7 more".
template <class Items>
std::string listed(const Items& items, size_t max_named = 16) {
    const size_t num_items = std::size(items), num_named = std::min(num_items, max_named);
    const std::string named = fmt::format("{}", fmt::join(items.begin(), items.begin() + num_named, ", "));
    return num_named < num_items ? fmt::format("{} and {} more", named, num_items - num_named) : named;
}

}  // namespace argosy
