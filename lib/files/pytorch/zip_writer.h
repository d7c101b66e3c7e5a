// Private to this room: the bytes of a zip around those of its last entry.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace argosy::pytorch {

struct ZipFrame {
    std::string head;  // the small entries; then the last entry's begin, if there is one
    std::string tail;  // the table
};

/// The last entry: its bytes lie between head and tail, from a multiple of 64 bytes on, as torch aligns them.
struct LastEntry {
    std::string name;
    int64_t num_bytes = 0;
    uint32_t crc = 0;  // zlib's; the frame's size does not depend on it
};

/// Entries are pairs of name and bytes.
ZipFrame frame_zip(std::span<const std::pair<std::string, std::string>> small,
                   const std::optional<LastEntry>& last);

}  // namespace argosy::pytorch
