// Private to this module: the first 512 bytes of every file, as a value and as the text of FORMAT.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/hash.h"

namespace argosy::checkpoint {

inline constexpr int64_t kUserBlockBytes = 512;
inline constexpr int kFormatMajor = 2, kFormatMinor = 0;
inline constexpr int kOldestMajor = 1;  // that is read

/// The most that a writer writes and a reader takes: a reader holds it in memory.
inline constexpr int64_t kMaxTableBytes = int64_t{1} << 30;

enum class FileKind { Manifest, Shard, Full };

/// The name in user blocks and messages.
const char* name(FileKind kind);

struct UserBlock {
    FileKind kind = FileKind::Shard;
    int64_t num_bytes = 0;  // of the whole file
    int64_t table_at = 0, table_bytes = 0;
    Hash table_hash;
    std::optional<Hash> set;  // of a shard, from format 2 on: the save that it belongs to
    Hash rest;                // of all bytes after the user block that are in no slab, asset or table
    Hash check;               // of the lines above the check line
    bool operator==(const UserBlock&) const = default;
};

/// Text of kUserBlockBytes. The check is computed; block.check is ignored.
std::string to_text(const UserBlock& block);

/// UserError, naming `place`, if the text is torn, of a newer major version, or not of this format. REQUIRES:
/// kUserBlockBytes of text.
UserBlock parse_user_block(std::string_view text, const std::string& place);

}  // namespace argosy::checkpoint
