#include "data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"

namespace argosy::data {
namespace {

using token_format::kBlockBytes;

/// Widens stored tokens to int64_t; returns the largest.
template <class Stored>
uint64_t widen(const std::byte* from, int64_t count, int64_t* out) {
    Stored largest = 0;
    for (int64_t i = 0; i < count; ++i) {
        Stored token;  // copied, because a dataset of another writer may be unaligned
        std::memcpy(&token, from + i * sizeof(Stored), sizeof(Stored));
        largest = std::max(largest, token);
        out[i] = token;
    }
    return largest;
}

uint64_t widen(const std::byte* from, int64_t element_bytes, int64_t count, int64_t* out) {
    switch (element_bytes) {
        case 1:
            return widen<uint8_t>(from, count, out);
        case 2:
            return widen<uint16_t>(from, count, out);
        case 4:
            return widen<uint32_t>(from, count, out);
        default:
            return widen<uint64_t>(from, count, out);
    }
}

std::vector<std::byte> read_bytes(const RawFile& file, const StoredArray& array, int64_t begin_byte,
                                  int64_t num_bytes) {
    std::vector<std::byte> bytes(num_bytes);
    file.read_at(array.offset + begin_byte, bytes);
    return bytes;
}

}  // namespace

bool CheckBudget::take(int64_t num_bytes) {
    if (left_bytes_.load(std::memory_order_relaxed) < num_bytes) return false;
    left_bytes_ -= num_bytes;
    return true;
}

TokenFile::TokenFile(StoredTokens stored, std::shared_ptr<CheckBudget> budget)
    : stored_(std::move(stored)),
      tokens_(RawFile::open_to_read(stored_.path)),
      index_of_megatron_(stored_.is_megatron() ? std::optional(RawFile::open_to_read(stored_.index_path))
                                               : std::nullopt),
      checksums_(stored_.checksums.num_elements),
      budget_(std::move(budget)) {
    const auto checksums = std::as_writable_bytes(std::span(checksums_));
    index().read_at(stored_.checksums.offset, checksums);
    const bool is_same =
        stored_.is_megatron()
            ? tokens_.size_bytes() == stored_.tokens.num_bytes() &&
                  index_fingerprint(*index_of_megatron_) == stored_.index_hash
            : token_format::checksum(checksums.data(), std::ssize(checksums)) == stored_.checksums_hash;
    if (!is_same) {
        throw UserError(
            "{} is not the file that rank 0 found there at the start: nodes have different files, or it was "
            "replaced; copy the file to all nodes, and replace none during a run",
            path().string());
    }
    if (budget_ && !checksums_.empty()) verified_ = std::make_unique<std::atomic<bool>[]>(checksums_.size());
}

TokenFile::TokenFile(const std::filesystem::path& path, TokenChecks checks)
    : TokenFile(locate_tokens(path),
                checks == TokenChecks::None ? nullptr : std::make_shared<CheckBudget>()) {}

int64_t TokenFile::num_documents() const {
    const int64_t entries = stored_.documents.num_elements;
    return stored_.is_megatron() ? entries - 1 : entries;
}

/// Whether a block of `array` matches its checksum.
bool TokenFile::is_sound(const StoredArray& array, int64_t block) const {
    const int64_t begin = block * kBlockBytes, num_bytes = std::min(kBlockBytes, array.num_bytes() - begin);
    return token_format::checksum(tokens_, array.offset + begin, num_bytes) ==
           checksums_[array.first_checksum + block];
}

/// Verifies the blocks of `array` that hold these bytes, unless that was done before or the budget is spent.
void TokenFile::verify(const StoredArray& array, int64_t begin_byte, int64_t end_byte) const {
    for (int64_t block = begin_byte / kBlockBytes; block * kBlockBytes < end_byte; ++block) {
        std::atomic<bool>& verified = verified_[array.first_checksum + block];
        if (verified.load(std::memory_order_relaxed)) continue;
        if (!budget_->take(std::min(kBlockBytes, array.num_bytes() - block * kBlockBytes))) continue;
        if (!is_sound(array, block)) {
            throw DamageError(
                "{}: {} {} .. {} do not match their checksum: the file is damaged. Copy or make it "
                "again; `prepare-data --verify` lists all damaged parts",
                path().string(), array.content, block * kBlockBytes / array.element_bytes,
                std::min((block + 1) * kBlockBytes / array.element_bytes, array.num_elements) - 1);
        }
        verified.store(true, std::memory_order_relaxed);
    }
}

/// An element of an array of 64-bit integers.
int64_t TokenFile::number(const StoredArray& array, int64_t element) const {
    const int64_t begin = element * array.element_bytes;
    if (verified_) verify(array, begin, begin + array.element_bytes);
    int64_t number = 0;
    index().read_at(array.offset + begin, std::as_writable_bytes(std::span(&number, 1)));
    return number;
}

/// The number of the document's first token. REQUIRES: 0 <= document <= num_documents().
int64_t TokenFile::document_start(int64_t document) const {
    if (document == num_documents()) return size();
    const int64_t start = number(stored_.documents, document);
    if (!stored_.is_megatron()) return start;
    const int64_t num_sequences = stored_.sequences.num_elements;
    if (start < 0 || start > num_sequences) {
        throw DamageError("{} is damaged: document {} begins with sequence {} of {}",
                          stored_.index_path.string(), document, start, num_sequences);
    }
    return start == num_sequences ? size() : number(stored_.sequences, start) / stored_.tokens.element_bytes;
}

int64_t TokenFile::first_document_after(int64_t token) const {
    int64_t begin = 0, end = num_documents();
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
    int64_t next = first_document_after(begin);
    const auto start_of_next = [&] { return next < num_documents() ? document_start(next) : size(); };
    int64_t start = start_of_next();
    for (int64_t i = 0, position = 0; i < count; ++i, ++position) {
        for (; start <= begin + i; ++next, start = start_of_next()) position = 0;
        out[i] = position;
    }
}

void TokenFile::copy(int64_t begin, int64_t count, int64_t* out) const {
    ARGOSY_CHECK(begin >= 0 && count >= 0 && begin + count <= size(), "tokens {} + {} of {}", begin, count,
                 size());
    if (count == 0) return;
    const int64_t token_bytes = stored_.tokens.element_bytes;
    if (verified_) {
        budget_->add(count * token_bytes);
        verify(stored_.tokens, begin * token_bytes, (begin + count) * token_bytes);
    }
    if (const auto fault = vocabulary_fault(begin, count, out))
        throw UserError("{}: {}", path().string(), *fault);
}

void TokenFile::mask_targets(int64_t begin, int64_t count, int64_t* targets) const {
    const StoredArray& mask = stored_.loss_mask;
    if (mask.num_elements == 0 || count == 0) return;
    const int64_t begin_byte = begin / 8, end_byte = token_format::num_mask_bytes(begin + count);
    if (verified_) {
        budget_->add(end_byte - begin_byte);
        verify(mask, begin_byte, end_byte);
    }
    const auto bytes = read_bytes(tokens_, mask, begin_byte, end_byte - begin_byte);
    for (int64_t token = begin; token < begin + count; ++token) {
        const auto bits = std::to_integer<unsigned>(bytes[token / 8 - begin_byte]);
        if ((bits >> token % 8 & 1) == 0) targets[token - begin] = -1;
    }
}

/// Widens tokens to `out`. Returns a fault if one of them is outside the vocabulary. REQUIRES: count > 0.
std::optional<std::string> TokenFile::vocabulary_fault(int64_t begin, int64_t count, int64_t* out) const {
    const int64_t token_bytes = stored_.tokens.element_bytes;
    const auto bytes = read_bytes(tokens_, stored_.tokens, begin * token_bytes, count * token_bytes);
    const uint64_t largest = widen(bytes.data(), token_bytes, count, out);
    if (largest < static_cast<uint64_t>(vocab_size())) return {};
    return fmt::format("token {} among tokens {} .. {} lies outside the vocabulary of {}", largest, begin,
                       begin + count - 1, vocab_size());
}

std::vector<std::string> TokenFile::find_faults(const std::function<void(double share)>& progress) const {
    std::vector<std::string> faults;
    const int64_t token_bytes = stored_.tokens.element_bytes, block_tokens = kBlockBytes / token_bytes;
    std::vector<int64_t> tokens(block_tokens);
    for (int64_t begin = 0; begin < size() && faults.size() < kMaxFaults; begin += block_tokens) {
        const int64_t count = std::min(block_tokens, size() - begin);
        if (!checksums_.empty() && !is_sound(stored_.tokens, begin / block_tokens)) {
            faults.push_back(
                fmt::format("tokens {} .. {} do not match their checksum", begin, begin + count - 1));
        } else if (const auto fault = vocabulary_fault(begin, count, tokens.data())) {
            faults.push_back(*fault);
        }
        progress(static_cast<double>(begin + count) / static_cast<double>(size()));
    }
    if (const auto fault = documents_fault()) faults.push_back(*fault);
    if (const auto fault = loss_mask_fault()) faults.push_back(*fault);
    return faults;
}

std::optional<std::string> TokenFile::loss_mask_fault() const {
    const StoredArray& mask = stored_.loss_mask;
    if (mask.num_elements == 0) return {};
    int64_t counted = 0;
    for (int64_t begin = 0; begin < mask.num_bytes(); begin += kBlockBytes) {
        const int64_t num_bytes = std::min(kBlockBytes, mask.num_bytes() - begin);
        if (!is_sound(mask, begin / kBlockBytes)) {
            return fmt::format("bytes {} .. {} of the loss mask do not match their checksum", begin,
                               begin + num_bytes - 1);
        }
        for (const std::byte byte : read_bytes(tokens_, mask, begin, num_bytes))
            counted += std::popcount(std::to_integer<unsigned>(byte));
    }
    if (counted == stored_.counted_tokens) return {};
    return fmt::format("the loss mask counts {} tokens, but its attribute says {}", counted,
                       stored_.counted_tokens);
}

/// Documents are ordered; an empty document begins where the next one does.
std::optional<std::string> TokenFile::documents_fault() const {
    const StoredArray& documents = stored_.documents;
    for (int64_t block = 0; !checksums_.empty() && block < token_format::num_blocks(documents.num_bytes());
         ++block) {
        if (is_sound(documents, block)) continue;
        return fmt::format("the offsets of documents {} and following do not match their checksum",
                           block * kBlockBytes / documents.element_bytes);
    }
    int64_t before = 0;
    for (int64_t i = 0; i < num_documents(); ++i) {
        const int64_t offset = document_start(i);
        if (offset < before || offset > size() || (i == 0 && offset != 0)) {
            return fmt::format(
                "document {} begins at token {}, and the document before it at {}; the file has {} tokens", i,
                offset, before, size());
        }
        before = offset;
    }
    return {};
}

}  // namespace argosy::data
