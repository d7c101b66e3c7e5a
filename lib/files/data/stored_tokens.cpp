#include "data/stored_tokens.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strict_json.h"
#include "h5/file.h"
#include "tokenizer/tokenizer_file.h"

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
    if (version == token_format::kVersion || version == token_format::kVersionWithLossMask) return version;
    throw UserError("{} has format version {}; this program reads {} and {}", tokens.place(), version,
                    token_format::kVersion, token_format::kVersionWithLossMask);
}

TokenInfo read_info(const h5::Dataset& tokens) {
    TokenInfo info{.vocab_size = tokens.integer_attribute("vocab_size"),
                   .end_of_text = tokens.integer_attribute("end_of_text"),
                   .tokenizer = tokens.string_attribute("tokenizer"),
                   .tokenizer_digest = tokens.string_attribute("tokenizer_digest")};
    if (info.vocab_size < 1 || info.vocab_size > kMaxVocabSize) {
        throw UserError("{} has vocab_size {}; it must be in 1 .. {}", tokens.place(), info.vocab_size,
                        kMaxVocabSize);
    }
    for (const std::string& text : {info.tokenizer, info.tokenizer_digest}) {
        if (is_utf8(text)) continue;
        throw DamageError("{} names its tokenizer {}, not in UTF-8; the file is damaged, make it again",
                          tokens.place(), shown(text));
    }
    const bool is_token = info.end_of_text >= 0 && info.end_of_text < info.vocab_size;
    if (!is_token && info.end_of_text != kNoEndOfText) {
        throw DamageError(
            "{} has end_of_text {}, outside of its vocabulary of {}; the file is damaged, make it again",
            tokens.place(), info.end_of_text, info.vocab_size);
    }
    return info;
}

/// The place of a dataset. `count` none: of any number of elements, but at least one.
StoredArray locate_array(const h5::Dataset& array, ElementType type, std::optional<int64_t> count,
                         const char* content) {
    if (array.type() != type || array.shape().size() != 1 || !array.contiguous() ||
        array.num_elements() < 1 || (count && array.num_elements() != *count)) {
        throw DamageError("{} is not a contiguous array of {} {}; the file is damaged, make it again",
                          array.place(), count ? std::to_string(*count) : "one or more", h5::name(type));
    }
    return {.num_elements = array.num_elements(),
            .element_bytes = size_bytes(type),
            .offset = array.offset(),
            .content = content};
}

/// The place of a dataset of 64-bit integers.
StoredArray locate_numbers(const h5::File& file, const char* name, std::optional<int64_t> count,
                           const char* content) {
    return locate_array(file.open_dataset(name), ElementType::Int64, count, content);
}

/// Reads where the loss mask is, and how many tokens count.
void locate_loss_mask(const h5::File& file, StoredTokens& stored) {
    const h5::Dataset mask = file.open_dataset(token_format::kLossMask);
    const int64_t num_tokens = stored.tokens.num_elements;
    stored.loss_mask = locate_array(mask, ElementType::UInt8, token_format::num_mask_bytes(num_tokens),
                                    "bytes of the loss mask");
    stored.loss_mask.first_checksum =
        stored.documents.first_checksum + token_format::num_blocks(stored.documents.num_bytes());
    stored.counted_tokens = mask.integer_attribute("counted_tokens");
    if (stored.counted_tokens >= 0 && stored.counted_tokens <= num_tokens) return;
    throw DamageError("{} says that {} of {} tokens count; the file is damaged, make it again", mask.place(),
                      stored.counted_tokens, num_tokens);
}

void check_end(const std::filesystem::path& path, const StoredArray& array) {
    const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    constexpr int64_t kMaxOffset = int64_t{1} << 60;
    if (array.offset < 0 || array.offset > kMaxOffset) {
        throw DamageError("{} is damaged: {} would begin at byte {}. Copy or make it again", path.string(),
                          array.content, static_cast<uint64_t>(array.offset));
    }
    if (array.num_elements == 0 || array.end() <= file_bytes) return;
    throw DamageError("{} is truncated: it has {} bytes, and {} end at byte {}. Copy or make it again",
                      path.string(), file_bytes, array.content, array.end());
}

/// Reads where the arrays other than the tokens are.
void locate_rest(const h5::File& file, int64_t version, StoredTokens& stored) {
    using token_format::num_blocks;
    stored.documents = locate_numbers(file, token_format::kDocuments, {}, "the offsets of documents");
    stored.documents.first_checksum = num_blocks(stored.tokens.num_bytes());
    if (version == token_format::kVersionWithLossMask) locate_loss_mask(file, stored);
    const int64_t num_checksums = stored.documents.first_checksum + num_blocks(stored.documents.num_bytes()) +
                                  num_blocks(stored.loss_mask.num_bytes());
    stored.checksums = locate_numbers(file, token_format::kChecksums, num_checksums, "the checksums");
    for (const StoredArray& array : {stored.documents, stored.loss_mask, stored.checksums})
        check_end(stored.path, array);
    stored.checksums_hash = token_format::checksum(RawFile::open_to_read(stored.path),
                                                   stored.checksums.offset, stored.checksums.num_bytes());
}

StoredTokens locate_in_hdf5(const std::filesystem::path& path) {
    const h5::File file = h5::File::open(path);
    const h5::Dataset tokens = file.open_dataset(token_format::kTokens);
    check_layout(tokens);
    const int64_t version = read_version(tokens);
    StoredTokens stored{.path = path, .index_path = path, .info = read_info(tokens)};
    stored.tokens = {.num_elements = tokens.num_elements(),
                     .element_bytes = size_bytes(*tokens.type()),
                     .offset = tokens.offset(),
                     .content = "tokens"};
    stored.counted_tokens = stored.tokens.num_elements;
    check_end(path, stored.tokens);
    locate_rest(file, version, stored);
    return stored;
}

}  // namespace

std::string tokenizer_file_digest(const std::filesystem::path& path) {
    constexpr int64_t kMaxBytes = int64_t{1} << 30;
    return tokenizer::digest_of(read_text(path, kMaxBytes));
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

namespace {

using nlohmann::json;

constexpr struct {
    StoredArray StoredTokens::*array;
    const char* content;
} kArrays[] = {{&StoredTokens::tokens, "tokens"},
               {&StoredTokens::documents, "the offsets of documents"},
               {&StoredTokens::checksums, "the checksums"},
               {&StoredTokens::sequences, "the offsets of sequences"},
               {&StoredTokens::loss_mask, "bytes of the loss mask"}};

}  // namespace

// MessagePack, because a path need not be UTF-8.
std::string to_bytes(std::span<const StoredTokens> files) {
    json all = json::array();
    for (const StoredTokens& file : files) {
        json arrays = json::array();
        for (const auto& [member, content] : kArrays) {
            const StoredArray& array = file.*member;
            arrays.push_back({array.num_elements, array.element_bytes, array.offset, array.first_checksum});
        }
        const TokenInfo& info = file.info;
        all.push_back({file.path.string(), file.index_path.string(), info.vocab_size, info.end_of_text,
                       info.tokenizer, info.tokenizer_digest, arrays, file.counted_tokens,
                       file.checksums_hash, file.index_hash});
    }
    std::string bytes;
    json::to_msgpack(all, bytes);
    return bytes;
}

std::vector<StoredTokens> files_of(std::string_view bytes) {
    std::vector<StoredTokens> files;
    for (const json& each : json::from_msgpack(bytes)) {
        StoredTokens file{.path = each[0].get<std::string>(),
                          .index_path = each[1].get<std::string>(),
                          .info = {each[2], each[3], each[4], each[5]},
                          .counted_tokens = each[7],
                          .checksums_hash = each[8],
                          .index_hash = each[9]};
        for (size_t i = 0; i < std::size(kArrays); ++i) {
            const json& numbers = each[6][i];
            file.*kArrays[i].array = {numbers[0], numbers[1], numbers[2], numbers[3], kArrays[i].content};
        }
        files.push_back(std::move(file));
    }
    return files;
}

}  // namespace argosy::data
