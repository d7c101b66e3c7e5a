// Private to this module: checks that a table is valid, whether it was read or is to be written. Each check
// throws UserError, which begins with `place`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/table.h"

namespace argosy::checkpoint {

/// Checks that the name is a possible HDF5 path and not reserved by FORMAT.md, and that the number of bytes
/// fits an int64_t.
void check_info(const TensorInfo& info, const std::string& place);

/// Checks that the name is a plain file name without a folder.
void check_file_name(const std::string& name, const std::string& place);

/// Checks that the slab is inside the tensor and has elements.
void check_slab(const TensorInfo& info, const layout::Slab& slab, const std::string& place);

/// Checks a whole table: names, shapes, slabs, and that no two byte ranges of a file overlap.
void check_table(const ShardTable& table, const std::string& place, const TableFile& file);
void check_table(const Manifest& manifest, const std::string& place, const TableFile& file);

/// The byte ranges, ascending, between the user block and the file's end that none of `ranges` covers.
/// UserError if two of `ranges` overlap, or if one of them ends after the file.
std::vector<ByteRange> gaps(std::vector<ByteRange> ranges, const std::string& place, int64_t file_bytes);

}  // namespace argosy::checkpoint
