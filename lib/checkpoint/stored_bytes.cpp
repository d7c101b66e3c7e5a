#include "checkpoint/stored_bytes.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace argosy::checkpoint {
namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 20;

UserBlock read_block(const RawFile& file) {
    const std::string place = file.path().string();
    const int64_t size = file.size_bytes();
    std::string text(kUserBlockBytes, '\0');
    if (size < kUserBlockBytes) {
        throw UserError(
            "{} is no file of a checkpoint, or torn: it has {} bytes, and {} at least were expected", place,
            size, kUserBlockBytes);
    }
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    const UserBlock block = parse_user_block(text, place);
    if (block.num_bytes != size) {
        throw UserError("{} is torn: it has {} bytes, and {} were expected", place, size, block.num_bytes);
    }
    return block;
}

}  // namespace

StoredBytes::StoredBytes(const std::filesystem::path& path)
    : file_(RawFile::open_to_read(path)), block_(read_block(file_)) {}

std::string StoredBytes::table() const {
    std::string text(block_.table_bytes, '\0');
    file_.read_at(block_.table_at, std::as_writable_bytes(std::span(text)));
    const Hash found = hash_of(std::as_bytes(std::span(text)));
    if (found != block_.table_hash) {
        throw UserError(
            "{}: its table ({} bytes at {}, outside the tensors) is torn: it gives the check {}, and {} was "
            "expected",
            place(), block_.table_bytes, block_.table_at, found.hex(), block_.table_hash.hex());
    }
    return text;
}

Hash hash_of(const RawFile& file, std::span<const ByteRange> ranges) {
    Hasher hasher;
    std::vector<std::byte> buffer;
    for (ByteRange range : ranges) {
        while (range.num_bytes > 0) {
            const int64_t count = std::min(range.num_bytes, kBufferBytes);
            buffer.resize(std::max<size_t>(buffer.size(), count));
            const std::span<std::byte> part(buffer.data(), count);
            file.read_at(range.at, part);
            hasher.add(part);
            range = {range.at + count, range.num_bytes - count};
        }
    }
    return hasher.value();
}

}  // namespace argosy::checkpoint
