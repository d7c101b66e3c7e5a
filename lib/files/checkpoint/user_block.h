// The user block is the first 512 bytes of every checkpoint file, here as a value and as the text that
// FORMAT.md specifies. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/hash.h"

namespace argosy::checkpoint {

inline constexpr int64_t kUserBlockBytes = 512;
inline constexpr std::string_view kMagic = "argosy checkpoint ";  // before the version in the first line
inline constexpr std::string_view kFormat = "2.0";
inline constexpr std::string_view kJointFormat = "3.0";  // of manifests whose cuts name their axes

/// Maximum size of a file's table, because a reader holds the table in memory.
inline constexpr int64_t kMaxTableBytes = int64_t{1} << 30;

enum class FileKind { Manifest, Shard, Full };

/// Returns the name of a kind in user blocks and messages.
const char* name(FileKind kind);

struct UserBlock {
    std::string_view format = kFormat;  // kFormat or kJointFormat
    FileKind kind = FileKind::Shard;
    int64_t num_bytes = 0;  // of the whole file
    int64_t table_at = 0, table_bytes = 0;
    Hash table_hash;
    std::optional<Hash> set;  // in shards, nowhere else: identifies the shard's save
    Hash rest;                // of all bytes after the user block that are in no slab, asset or table
    Hash check;               // of the lines above the check line
    bool operator==(const UserBlock&) const = default;
};

/// Returns kUserBlockBytes of text. The check line is computed from the other lines; block.check is ignored.
std::string to_text(const UserBlock& block);

/// Throws UserError, which names `place`, if the text is damaged or is not of this format. REQUIRES: the text
/// has kUserBlockBytes.
UserBlock parse_user_block(std::string_view text, const std::string& place);

}  // namespace argosy::checkpoint
