#include "data/stored_tokens.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "h5/file.h"

namespace argosy::data {
namespace {

void check_layout(const h5::Dataset& tokens) {
    if (!tokens.contiguous()) {
        throw UserError("{} is not stored contiguously; rewrite it without chunks (h5repack -l CONTI)",
                        tokens.place());
    }
    if (tokens.type() != ElementType::UInt16 && tokens.type() != ElementType::UInt32) {
        throw UserError("{} holds {} elements; a token file holds u16 or u32", tokens.place(),
                        tokens.type() ? h5::name(*tokens.type()) : "unknown");
    }
    if (tokens.shape().size() != 1)
        throw UserError("{} has {} dims; tokens have 1", tokens.place(), tokens.shape().size());
    if (tokens.num_elements() == 0) throw UserError("{} is empty", tokens.place());
}

int64_t read_version(const h5::Dataset& tokens) {
    const int64_t version = tokens.integer_attribute("format_version");
    if (version == token_format::kVersion || version == token_format::kVersionWithoutChecks) return version;
    throw UserError("{} has format version {}; this program reads {} and {}", tokens.place(), version,
                    token_format::kVersionWithoutChecks, token_format::kVersion);
}

TokenInfo read_info(const h5::Dataset& tokens, int64_t version) {
    TokenInfo info{.vocab_size = tokens.integer_attribute("vocab_size"),
                   .end_of_text = tokens.integer_attribute("end_of_text"),
                   .tokenizer = tokens.string_attribute("tokenizer"),
                   .tokenizer_digest =
                       version == token_format::kVersion ? tokens.string_attribute("tokenizer_digest") : ""};
    if (info.vocab_size < 1 || info.vocab_size > kMaxVocabSize) {
        throw UserError("{} has vocab_size {}; it must be in 1 .. {}", tokens.place(), info.vocab_size,
                        kMaxVocabSize);
    }
    return info;
}

/// The place of a dataset of 64-bit integers. `count` none: any, but at least one.
StoredArray locate_numbers(const h5::File& file, const char* name, std::optional<int64_t> count,
                           const char* content) {
    const h5::Dataset numbers = file.open_dataset(name);
    if (numbers.type() != ElementType::Int64 || numbers.shape().size() != 1 || !numbers.contiguous() ||
        numbers.num_elements() < 1 || (count && numbers.num_elements() != *count)) {
        throw UserError("{} is not a contiguous array of {} i64; the file is damaged, make it again",
                        numbers.place(), count ? std::to_string(*count) : "one or more");
    }
    return {.num_elements = numbers.num_elements(),
            .element_bytes = sizeof(int64_t),
            .offset = numbers.offset(),
            .content = content};
}

void check_end(const std::filesystem::path& path, const StoredArray& array) {
    const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    if (array.num_elements == 0 || array.end() <= file_bytes) return;
    throw UserError("{} is truncated: it has {} bytes, and {} end at byte {}", path.string(), file_bytes,
                    array.content, array.end());
}

StoredTokens locate_in_hdf5(const std::filesystem::path& path) {
    const h5::File file = h5::File::open(path);
    const h5::Dataset tokens = file.open_dataset(token_format::kTokens);
    check_layout(tokens);
    const int64_t version = read_version(tokens);
    StoredTokens stored{.path = path, .index_path = path, .info = read_info(tokens, version)};
    stored.tokens = {.num_elements = tokens.num_elements(),
                     .element_bytes = size_bytes(*tokens.type()),
                     .offset = tokens.offset(),
                     .content = "tokens"};
    check_end(path, stored.tokens);
    if (version == token_format::kVersionWithoutChecks) return stored;
    stored.documents = locate_numbers(file, token_format::kDocuments, {}, "the offsets of documents");
    stored.documents.first_checksum = token_format::num_blocks(stored.tokens.num_bytes());
    stored.checksums = locate_numbers(
        file, token_format::kChecksums,
        stored.documents.first_checksum + token_format::num_blocks(stored.documents.num_bytes()),
        "the checksums");
    check_end(path, stored.documents);
    check_end(path, stored.checksums);
    return stored;
}

}  // namespace

std::string tokenizer_file_digest(const std::filesystem::path& path) {
    constexpr int64_t kMaxBytes = int64_t{1} << 30;
    const std::string text = read_text(path, kMaxBytes);
    const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

int64_t token_format::checksum(const std::byte* block, int64_t num_bytes) {
    return static_cast<int64_t>(XXH3_64bits(block, static_cast<size_t>(num_bytes)));
}

int64_t token_format::checksum(const RawFile& file, int64_t offset, int64_t num_bytes) {
    constexpr int64_t kPieceBytes = 1 << 18;  // stays in a processor's cache until it is hashed
    std::vector<std::byte> piece(std::min(kPieceBytes, num_bytes));
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
    XXH3_64bits_reset(state.get());
    for (int64_t done = 0; done < num_bytes; done += kPieceBytes) {
        const auto bytes = std::span(piece).first(std::min(kPieceBytes, num_bytes - done));
        file.read_at(offset + done, bytes);
        XXH3_64bits_update(state.get(), bytes.data(), bytes.size());
    }
    return static_cast<int64_t>(XXH3_64bits_digest(state.get()));
}

StoredTokens locate_tokens(const std::filesystem::path& path, int64_t vocab_size) {
    return path.extension() == ".bin" ? locate_megatron_tokens(path, vocab_size) : locate_in_hdf5(path);
}

}  // namespace argosy::data
