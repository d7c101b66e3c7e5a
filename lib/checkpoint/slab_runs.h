// The intersection of two boxes of a tensor, and the positions of its elements within each box.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "layout/param_spec.h"

namespace argosy::checkpoint {

/// Empty if the boxes share no element.
std::optional<layout::Slab> intersection(const layout::Slab& a, const layout::Slab& b);

/// `length` elements that are consecutive in both boxes: from element `in_a` of one and `in_b` of the other,
/// each counted row-major.
struct Run {
    int64_t in_a = 0, in_b = 0, length = 0;
    bool operator==(const Run&) const = default;
};

/// Visits the longest possible runs of `common`, ascending in both boxes. REQUIRES: `common` is the
/// intersection of `a` and `b`.
void for_each_run(const layout::Slab& common, const layout::Slab& a, const layout::Slab& b,
                  const std::function<void(const Run&)>& visit);

}  // namespace argosy::checkpoint
