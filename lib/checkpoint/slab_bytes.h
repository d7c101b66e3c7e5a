// Private to this module: the bytes of stored slabs, read and compared with their checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/raw_file.h"
#include "checkpoint/table.h"

namespace argosy::checkpoint {

/// What is wanted of a stored slab: `common` of it, which is to lie in memory as the part of `wanted` that it
/// is.
struct Want {
    layout::Slab common, wanted;
};

/// Reads it into `out`, which holds all of `wanted`; returns the bytes fetched. Few large reads: rows that
/// lie less than a page apart are read with what is between them, through a small buffer.
int64_t read_part(const RawFile& file, const StoredTensor& tensor, const StoredSlab& stored, const Want& want,
                  std::span<std::byte> out);

/// Says that a slab gives another check than it should; empty where they agree.
std::string check_fault(const RawFile& file, const StoredTensor& tensor, const StoredSlab& stored,
                        const Hash& found);

}  // namespace argosy::checkpoint
