// Private to this room: the table of a zip file, or of one that lies inside a file. Entries are stored, not
// compressed, so that their bytes are read where they lie.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/raw_file.h"

namespace argosy::pytorch {

struct ZipEntry {
    int64_t at = 0;  // the first byte in the file
    int64_t num_bytes = 0;
};

/// The entries of the zip at [offset, offset + length) of a file. The input is not trusted: DamageError for
/// a table that does not hold, UserError for compressed or encrypted entries. `place` begins the messages.
std::map<std::string, ZipEntry, std::less<>> read_zip(const RawFile& file, int64_t offset, int64_t length,
                                                      const std::string& place);

}  // namespace argosy::pytorch
