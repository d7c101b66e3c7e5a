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

/// Reads the elements that `stored` and `wanted` have in common into `out`, which holds all of `wanted`;
/// returns the bytes fetched. The function makes few large reads: rows less than a page apart are read
/// through a small buffer, together with the bytes between them. REQUIRES: the slabs have elements in common.
int64_t read_common(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                    const layout::Slab& wanted, std::span<std::byte> out);

/// A message if the found hash differs from the slab's check; empty if they agree.
std::string check_fault(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                        const Hash& found);

}  // namespace argosy::checkpoint
