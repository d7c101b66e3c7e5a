// Private to this module: reads the bytes of stored slabs and compares them with their checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/raw_file.h"
#include "checkpoint/table.h"
#include "layout/param_spec.h"

namespace argosy::checkpoint {

/// A request for the box `common` of a stored slab. In memory it is a part of the box `wanted`.
struct Want {
    layout::Slab common, wanted;
};

/// Reads `want.common` into `out`, which holds all of `want.wanted`; returns the bytes fetched. The function
/// makes few large reads: rows less than a page apart are read through a small buffer, together with the
/// bytes between them.
int64_t read_part(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored, const Want& want,
                  std::span<std::byte> out);

/// A message if the found hash differs from the slab's check; empty if they agree.
std::string check_fault(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                        const Hash& found);

// The intersection of two boxes of a tensor, and the positions of its elements within each box.

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
