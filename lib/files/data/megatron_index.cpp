// Megatron's indexed datasets. The .idx, little-endian and without padding: the nine bytes "MMIDIDX\0\0"; u64
// version, 1; u8 code of the tokens' type; u64 number of sequences; u64 number of document entries; i32
// tokens of each sequence; i64 offset in the .bin of each sequence; i64 document entries, each the number of
// a document's first sequence, and at last the number of sequences. A mode of each sequence may follow. The
// .bin holds the tokens of all sequences, one after the other. The .bin is read as one stream of tokens.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/raw_file.h"
#include "data/stored_tokens.h"

namespace argosy::data {
namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr int64_t kHeaderBytes = 34;

/// Bytes of a token of this type; none for types that cannot hold every token, or hold fractions. A negative
/// token reads as a large one, which no vocabulary has.
std::optional<int64_t> token_bytes_of(int code) {
    constexpr std::pair<int, int64_t> kTypes[] = {
        {1, 1}, {8, 2}, {4, 4}, {5, 8}};  // uint8, uint16, int32, int64
    for (const auto& [type, num_bytes] : kTypes)
        if (type == code) return num_bytes;
    return {};
}

template <class Number>
Number number_at(const RawFile& file, int64_t offset) {
    Number number{};
    file.read_at(offset, std::as_writable_bytes(std::span(&number, 1)));
    return number;
}

/// Reads a count of elements that the file has room for.
int64_t count_at(const RawFile& index, int64_t offset, int64_t element_bytes) {
    const auto count = number_at<uint64_t>(index, offset);
    if (count >= 1 && count <= static_cast<uint64_t>(index.size_bytes() / element_bytes))
        return static_cast<int64_t>(count);
    throw DamageError(
        "{} is damaged: it has {} bytes and says that it lists {} sequences or documents. Copy it again",
        index.path().string(), index.size_bytes(), count);
}

int64_t check_header(const RawFile& index) {
    std::string first(std::min<size_t>(index.size_bytes(), kMagic.size()), '\0');
    index.read_at(0, std::as_writable_bytes(std::span(first)));
    if (!kMagic.starts_with(first)) {
        throw UserError(
            "{} is not the index of an indexed dataset of Megatron: it does not begin with MMIDIDX",
            index.path().string());
    }
    if (index.size_bytes() < kHeaderBytes) {
        throw DamageError("{} is truncated: it has {} bytes, and its header has {}. Copy it again",
                          index.path().string(), index.size_bytes(), kHeaderBytes);
    }
    if (const auto version = number_at<uint64_t>(index, 9); version != 1)
        throw UserError("{} has version {}; this program reads 1", index.path().string(), version);
    const int code = number_at<uint8_t>(index, 17);
    if (const auto token_bytes = token_bytes_of(code)) return *token_bytes;
    throw UserError(
        "{} says that the type of the tokens is {}; this program reads 1 (uint8), 8 (uint16), 4 (int32) and "
        "5 "
        "(int64)",
        index.path().string(), code);
}

}  // namespace

int64_t index_fingerprint(const RawFile& index) {
    constexpr int64_t kSampled = 64 << 10;
    const int64_t size = index.size_bytes(), part = std::min(size, kSampled);
    uint64_t hash = static_cast<uint64_t>(size);
    for (const int64_t offset : {int64_t{0}, size - part})
        hash = 31 * hash + static_cast<uint64_t>(token_format::checksum(index, offset, part));
    return static_cast<int64_t>(hash);
}

StoredTokens locate_megatron_tokens(const std::filesystem::path& path, int64_t vocab_size) {
    StoredTokens stored{.path = path,
                        .index_path = std::filesystem::path(path).replace_extension(".idx"),
                        .info = {.vocab_size = vocab_size}};
    const RawFile index = RawFile::open_to_read(stored.index_path);
    const int64_t token_bytes = check_header(index);
    const int64_t num_sequences = count_at(index, 18, sizeof(int32_t) + sizeof(int64_t));
    const int64_t num_entries = count_at(index, 26, sizeof(int64_t));
    const StoredArray sizes{num_sequences, sizeof(int32_t), kHeaderBytes};
    stored.sequences = {num_sequences, sizeof(int64_t), sizes.end(), 0, "the offsets of sequences"};
    stored.documents = {num_entries, sizeof(int64_t), stored.sequences.end(), 0, "the documents"};
    if (index.size_bytes() < stored.documents.end()) {
        throw DamageError("{} is truncated: it has {} bytes, and {} end at byte {}. Copy it again",
                          stored.index_path.string(), index.size_bytes(), stored.documents.content,
                          stored.documents.end());
    }
    const int64_t end = number_at<int64_t>(index, stored.sequences.end() - int64_t{sizeof(int64_t)}) +
                        number_at<int32_t>(index, sizes.end() - int64_t{sizeof(int32_t)}) * token_bytes;
    const int64_t num_bytes = RawFile::open_to_read(path).size_bytes();
    if (num_bytes != end || num_bytes == 0 || num_bytes % token_bytes != 0) {
        throw DamageError(
            "{} has {} bytes, but its index {} ends at byte {}, with {} bytes a token: copy both again",
            path.string(), num_bytes, stored.index_path.string(), end, token_bytes);
    }
    stored.tokens = {num_bytes / token_bytes, token_bytes, 0, 0, "tokens"};
    stored.counted_tokens = stored.tokens.num_elements;
    stored.index_hash = index_fingerprint(index);
    return stored;
}

}  // namespace argosy::data
