// Private to this module: reads the bytes of stored slabs and compares them with their checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/raw_file.h"
#include "checkpoint/table.h"

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

}  // namespace argosy::checkpoint
