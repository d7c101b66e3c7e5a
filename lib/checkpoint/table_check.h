// Private to this module: what makes a table valid, whoever made it. Each check throws a UserError that
// begins with `place`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/table.h"

namespace argosy::checkpoint {

/// Bytes of a file that are under a check of their own.
struct ByteRange {
    int64_t at = 0, num_bytes = 0;
    bool operator==(const ByteRange&) const = default;
};

/// A name that an HDF5 path can be and that is not one of FORMAT.md's own; a shape whose bytes can be
/// counted.
void check_info(const TensorInfo& info, const std::string& place);

/// A plain file name: in the folder where the table is, not elsewhere.
void check_file_name(const std::string& name, const std::string& place);

/// The slab lies in the tensor and has elements.
void check_slab(const TensorInfo& info, const layout::Slab& slab, const std::string& place);

/// REQUIRES: valid info. `file_bytes`: of the file that the table stands in.
void check_table(const ShardTable& table, const std::string& place, int64_t file_bytes);
void check_table(const Manifest& manifest, const std::string& place, int64_t file_bytes);

/// What of the bytes from the user block to the file's end lies in none of `ranges`, in order. UserError
/// where two of them overlap or one leaves the file.
std::vector<ByteRange> gaps(std::vector<ByteRange> ranges, const std::string& place, int64_t file_bytes);

int64_t num_bytes(const StoredTensor& tensor, const StoredSlab& slab);

}  // namespace argosy::checkpoint
