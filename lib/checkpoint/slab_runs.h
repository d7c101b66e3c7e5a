// Where the elements that two boxes of a tensor share lie in each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "layout/param_spec.h"

namespace argosy::checkpoint {

/// Nothing where the boxes share no element.
std::optional<layout::Slab> intersection(const layout::Slab& a, const layout::Slab& b);

/// `length` elements in a row in both boxes: from element `in_a` of the one and `in_b` of the other, each
/// row-major.
struct Run {
    int64_t in_a = 0, in_b = 0, length = 0;
    bool operator==(const Run&) const = default;
};

/// The runs of `common`, as long as they can be, ascending in both. REQUIRES: `common` is an intersection of
/// the two.
void for_each_run(const layout::Slab& common, const layout::Slab& a, const layout::Slab& b,
                  const std::function<void(const Run&)>& visit);

}  // namespace argosy::checkpoint
