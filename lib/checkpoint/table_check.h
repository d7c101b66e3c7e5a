// Private to this module: the validity checks of a table, whatever its origin. Each check throws a UserError
// that begins with `place`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/table.h"

namespace argosy::checkpoint {

/// A byte range of a file with its own check.
struct ByteRange {
    int64_t at = 0, num_bytes = 0;
    bool operator==(const ByteRange&) const = default;
};

/// The name is a possible HDF5 path and not reserved by FORMAT.md; the shape's number of bytes fits an
/// int64_t.
void check_info(const TensorInfo& info, const std::string& place);

/// The name is a plain file name, in the folder of the table.
void check_file_name(const std::string& name, const std::string& place);

/// The slab is inside the tensor and has elements.
void check_slab(const TensorInfo& info, const layout::Slab& slab, const std::string& place);

/// REQUIRES: valid info. `file_bytes`: the length of the file that contains the table.
void check_table(const ShardTable& table, const std::string& place, int64_t file_bytes);
void check_table(const Manifest& manifest, const std::string& place, int64_t file_bytes);

/// The byte ranges between the user block and the file's end that are in none of `ranges`, ascending.
/// UserError if two of `ranges` overlap or one exceeds the file.
std::vector<ByteRange> gaps(std::vector<ByteRange> ranges, const std::string& place, int64_t file_bytes);

int64_t num_bytes(const StoredTensor& tensor, const StoredSlab& slab);

}  // namespace argosy::checkpoint
