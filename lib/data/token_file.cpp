#include "data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/raw_file.h"
#include "h5/file.h"

namespace argosy::data {
namespace {

using token_format::kBlockBytes;

/// Widens stored tokens to int64_t; returns the largest.
template <class Stored>
int64_t widen(const std::byte* from, int64_t count, int64_t* out) {
    Stored largest = 0;
    for (int64_t i = 0; i < count; ++i) {
        Stored token;  // copied, because a dataset of another writer may be unaligned
        std::memcpy(&token, from + i * sizeof(Stored), sizeof(Stored));
        largest = std::max(largest, token);
        out[i] = token;
    }
    return largest;
}

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

/// Checks a dataset of 64-bit integers. `count` none: any, but at least one.
void check_numbers(const h5::Dataset& numbers, std::optional<int64_t> count) {
    if (numbers.type() != ElementType::Int64 || numbers.shape().size() != 1 || !numbers.contiguous() ||
        numbers.num_elements() < 1 || (count && numbers.num_elements() != *count)) {
        throw UserError("{} is not a contiguous array of {} i64; the file is damaged, make it again",
                        numbers.place(), count ? std::to_string(*count) : "one or more");
    }
}

}  // namespace

int64_t token_format::checksum(const std::byte* block, int64_t num_bytes) {
    return static_cast<int64_t>(XXH3_64bits(block, static_cast<size_t>(num_bytes)));
}

TokenFile::TokenFile(std::filesystem::path path, TokenChecks checks)
    : path_(std::move(path)),
      stored_(locate(path_)),
      bytes_(path_, stored_.tokens.offset, stored_.tokens.num_bytes()) {
    if (stored_.checksums.empty()) return;
    documents_.emplace(path_, stored_.documents.offset, stored_.documents.num_bytes());
    if (checks == TokenChecks::None) return;
    verified_ = std::make_unique<std::atomic<bool>[]>(stored_.checksums.size());
}

TokenFile::Stored TokenFile::locate(const std::filesystem::path& path) {
    const h5::File file = h5::File::open(path);
    const h5::Dataset tokens = file.open_dataset(token_format::kTokens);
    check_layout(tokens);
    const int64_t version = read_version(tokens);
    Stored stored{.info = read_info(tokens, version),
                  .tokens = {tokens.num_elements(), size_bytes(*tokens.type()), tokens.offset(), 0, "tokens"},
                  .documents = {},
                  .checksums = {}};
    if (version == token_format::kVersionWithoutChecks) return stored;
    const h5::Dataset documents = file.open_dataset(token_format::kDocuments);
    check_numbers(documents, {});
    stored.documents = {documents.num_elements(), sizeof(int64_t), documents.offset(),
                        token_format::num_blocks(stored.tokens.num_bytes()), "the offsets of documents"};
    const h5::Dataset checksums = file.open_dataset(token_format::kChecksums);
    check_numbers(checksums,
                  stored.documents.first_checksum + token_format::num_blocks(stored.documents.num_bytes()));
    stored.checksums.resize(checksums.num_elements());
    checksums.read(std::as_writable_bytes(std::span(stored.checksums)));
    return stored;
}

std::optional<int64_t> TokenFile::num_documents() const {
    if (stored_.checksums.empty()) return {};
    return stored_.documents.num_elements;
}

/// Whether a block of `array`, whose first byte is `bytes`, matches its checksum.
bool TokenFile::is_sound(const Array& array, const std::byte* bytes, int64_t block) const {
    const int64_t begin = block * kBlockBytes, num_bytes = std::min(kBlockBytes, array.num_bytes() - begin);
    return token_format::checksum(bytes + begin, num_bytes) ==
           stored_.checksums[array.first_checksum + block];
}

/// Verifies the blocks of `array` that hold these bytes, unless that was done before.
void TokenFile::verify(const Array& array, const std::byte* bytes, int64_t begin_byte,
                       int64_t end_byte) const {
    for (int64_t block = begin_byte / kBlockBytes; block * kBlockBytes < end_byte; ++block) {
        std::atomic<bool>& verified = verified_[array.first_checksum + block];
        if (verified.load(std::memory_order_relaxed)) continue;
        if (!is_sound(array, bytes, block)) {
            throw DamageError(
                "{}: {} {} .. {} do not match their checksum: the file is damaged. Copy or make it "
                "again; `prepare-data --verify` lists all damaged parts",
                path_.string(), array.content, block * kBlockBytes / array.element_bytes,
                std::min((block + 1) * kBlockBytes / array.element_bytes, array.num_elements) - 1);
        }
        verified.store(true, std::memory_order_relaxed);
    }
}

/// The number of the document's first token.
int64_t TokenFile::document_start(int64_t document) const {
    const int64_t begin = document * stored_.documents.element_bytes;
    if (verified_)
        verify(stored_.documents, documents_->data(), begin, begin + stored_.documents.element_bytes);
    int64_t token = 0;
    std::memcpy(&token, documents_->data() + begin, sizeof(token));
    return token;
}

int64_t TokenFile::first_document_after(int64_t token) const {
    int64_t begin = 0, end = stored_.documents.num_elements;
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (document_start(middle) > token) {
            end = middle;
        } else {
            begin = middle + 1;
        }
    }
    return begin;
}

void TokenFile::copy_positions(int64_t begin, int64_t count, int64_t* out) const {
    ARGOSY_CHECK(knows_documents());
    if (!documents_) {  // version 1: a document begins after the token that ends the one before
        copy(begin, count, out);
        for (int64_t i = 0, position = 0; i < count; ++i, ++position) {
            const bool is_end = out[i] == stored_.info.end_of_text;
            out[i] = position;
            if (is_end) position = -1;
        }
        return;
    }
    int64_t next = first_document_after(begin);
    for (int64_t i = 0, position = 0; i < count; ++i, ++position) {
        for (; next < stored_.documents.num_elements && document_start(next) <= begin + i; ++next)
            position = 0;
        out[i] = position;
    }
}

void TokenFile::copy(int64_t begin, int64_t count, int64_t* out) const {
    ARGOSY_CHECK(begin >= 0 && count >= 0 && begin + count <= size(), "tokens {} + {} of {}", begin, count,
                 size());
    if (count == 0) return;
    const int64_t token_bytes = stored_.tokens.element_bytes;
    if (verified_) verify(stored_.tokens, bytes_.data(), begin * token_bytes, (begin + count) * token_bytes);
    if (const auto fault = vocabulary_fault(begin, count, out))
        throw UserError("{}: {}", path_.string(), *fault);
}

/// Widens tokens to `out`. Returns a fault if one of them is outside the vocabulary. REQUIRES: count > 0.
std::optional<std::string> TokenFile::vocabulary_fault(int64_t begin, int64_t count, int64_t* out) const {
    const int64_t token_bytes = stored_.tokens.element_bytes;
    const std::byte* from = bytes_.data() + begin * token_bytes;
    const int64_t largest =
        token_bytes == 2 ? widen<uint16_t>(from, count, out) : widen<uint32_t>(from, count, out);
    if (largest < vocab_size()) return {};
    return fmt::format("token {} among tokens {} .. {} lies outside the vocabulary of {}", largest, begin,
                       begin + count - 1, vocab_size());
}

std::vector<std::string> TokenFile::find_faults(const std::function<void(double share)>& progress) const {
    std::vector<std::string> faults;
    const int64_t token_bytes = stored_.tokens.element_bytes, block_tokens = kBlockBytes / token_bytes;
    std::vector<int64_t> tokens(block_tokens);
    for (int64_t begin = 0; begin < size() && faults.size() < kMaxFaults; begin += block_tokens) {
        const int64_t count = std::min(block_tokens, size() - begin);
        if (!stored_.checksums.empty() && !is_sound(stored_.tokens, bytes_.data(), begin / block_tokens)) {
            faults.push_back(
                fmt::format("tokens {} .. {} do not match their checksum", begin, begin + count - 1));
        } else if (const auto fault = vocabulary_fault(begin, count, tokens.data())) {
            faults.push_back(*fault);
        }
        progress(static_cast<double>(begin + count) / static_cast<double>(size()));
    }
    if (const auto fault = documents_fault()) faults.push_back(*fault);
    return faults;
}

/// Documents are ordered; an empty document begins where the next one does.
std::optional<std::string> TokenFile::documents_fault() const {
    if (!documents_) return {};
    const std::byte* const bytes = documents_->data();
    for (int64_t block = 0; block < token_format::num_blocks(stored_.documents.num_bytes()); ++block) {
        if (is_sound(stored_.documents, bytes, block)) continue;
        const int64_t begin = block * kBlockBytes / stored_.documents.element_bytes;
        return fmt::format("the offsets of documents {} and following do not match their checksum", begin);
    }
    int64_t before = 0;
    for (int64_t i = 0; i < stored_.documents.num_elements; ++i) {
        int64_t offset = 0;
        std::memcpy(&offset, bytes + i * sizeof(offset), sizeof(offset));
        if (offset < before || offset > size() || (i == 0 && offset != 0)) {
            return fmt::format(
                "document {} begins at token {}, and the document before it at {}; the file has {} tokens", i,
                offset, before, size());
        }
        before = offset;
    }
    return {};
}

MappedFile::MappedFile(const std::filesystem::path& path, int64_t offset, int64_t num_bytes) {
    const int64_t file_bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    if (offset + num_bytes > file_bytes) {  // reading a page beyond the file's end would kill the process
        throw UserError("{} is truncated: it has {} bytes, and its tokens end at byte {}", path.string(),
                        file_bytes, offset + num_bytes);
    }
    // mmap needs an offset at a page's boundary; data_ begins lead_bytes after it.
    const int64_t lead_bytes = offset % ::sysconf(_SC_PAGESIZE);
    mapped_bytes_ = lead_bytes + num_bytes;
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) throw UserError("cannot open {}: {}", path.string(), std::strerror(errno));
    pages_ = ::mmap(nullptr, mapped_bytes_, PROT_READ, MAP_SHARED, file.number(), offset - lead_bytes);
    if (pages_ == MAP_FAILED)
        throw RunError("cannot map {} into memory: {}", path.string(), std::strerror(errno));
    data_ = static_cast<const std::byte*>(pages_) + lead_bytes;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)), mapped_bytes_(other.mapped_bytes_), data_(other.data_) {}

MappedFile::~MappedFile() {
    if (pages_ != nullptr) ::munmap(pages_, mapped_bytes_);
}

}  // namespace argosy::data
