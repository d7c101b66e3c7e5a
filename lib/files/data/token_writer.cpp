#include "data/token_writer.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "h5/file.h"

namespace argosy::data {
namespace {

using token_format::kBlockBytes, token_format::num_blocks;

constexpr const char* kWriterAttribute = "written_by";
constexpr const char* kWriterName = "argosy prepare-data";

ElementType type_for(int64_t vocab_size) {
    return vocab_size <= 65536 ? ElementType::UInt16 : ElementType::UInt32;
}

std::filesystem::path spool_path(std::filesystem::path path, const char* what) {
    return path += std::string(".") + what + ".partial";
}

bool is_from_token_writer(const std::filesystem::path& path) {
    try {
        const std::string writer =
            h5::File::open(path).open_dataset(token_format::kTokens).string_attribute(kWriterAttribute);
        return writer.starts_with(kWriterName);
    } catch (const Error&) {
        return false;  // not an HDF5 file, or one with other contents
    }
}

/// Keeps the low `to_bytes` of each number of `from_bytes`, which come first in memory.
void narrow(std::vector<std::byte>& numbers, int64_t from_bytes, int64_t to_bytes) {
    if (from_bytes == to_bytes) return;
    ARGOSY_CHECK(from_bytes == sizeof(uint32_t) && to_bytes == sizeof(uint16_t));
    const size_t count = numbers.size() / sizeof(uint32_t);
    for (size_t i = 0; i < count; ++i) {
        std::memcpy(numbers.data() + i * sizeof(uint16_t), numbers.data() + i * sizeof(uint32_t),
                    sizeof(uint16_t));  // little-endian: the low half comes first
    }
    numbers.resize(count * sizeof(uint16_t));
}

}  // namespace

template <class Number>
void Spool<Number>::append(std::span<const Number> numbers) {
    constexpr size_t kBufferBytes = 1 << 20;
    buffer_.insert(buffer_.end(), numbers.begin(), numbers.end());
    size_ += std::ssize(numbers);
    if (buffer_.size() * sizeof(Number) >= kBufferBytes) flush();
}

template <class Number>
void Spool<Number>::flush() {
    const auto all = std::as_bytes(std::span(buffer_));
    std::vector<std::byte> bytes(all.begin(), all.end());
    narrow(bytes, sizeof(Number), stored_bytes_);
    file_.write_at(written_ * stored_bytes_, bytes);
    written_ += std::ssize(buffer_);
    buffer_.clear();
}

template <class Number>
std::vector<std::byte> Spool<Number>::read(int64_t begin, int64_t count) const {
    std::vector<std::byte> bytes(count * stored_bytes_);
    file_.read_at(begin * stored_bytes_, bytes);
    return bytes;
}

void BitSpool::append(std::span<const uint8_t> bits) {
    std::vector<uint8_t> full;
    for (const uint8_t bit : bits) {
        last_ |= bit << size_ % 8;
        num_ones_ += bit;
        if (++size_ % 8 == 0) full.push_back(std::exchange(last_, 0));
    }
    bytes_.append(full);
}

void BitSpool::flush() {
    if (size_ % 8 != 0) bytes_.append(std::array{last_});
    bytes_.flush();
}

TokenWriter::TokenWriter(std::filesystem::path path, int64_t max_vocab_size)
    : path_(std::move(path)),
      max_vocab_size_(max_vocab_size),
      file_(path_, is_from_token_writer),
      tokens_(spool_path(path_, "tokens"), size_bytes(type_for(max_vocab_size))),
      documents_(spool_path(path_, "documents"), sizeof(int64_t)),
      mask_(spool_path(path_, "loss_mask")) {}

void TokenWriter::append_document(std::span<const uint32_t> tokens, std::span<const uint8_t> loss_mask) {
    documents_.append(std::array{size()});
    tokens_.append(tokens);
    mask_.append(loss_mask);
    ARGOSY_CHECK(mask_.size() == (has_loss_mask() ? size() : 0), "{} tokens with {} in the loss mask", size(),
                 mask_.size());
}

void TokenWriter::commit(const TokenInfo& info) {
    ARGOSY_CHECK(info.vocab_size <= max_vocab_size_, "vocabulary {} over {}", info.vocab_size,
                 max_vocab_size_);
    if (size() == 0) throw UserError("there are no tokens to write to {}", path_.string());
    tokens_.flush();
    documents_.flush();
    mask_.flush();
    const int64_t token_bytes = size_bytes(type_for(info.vocab_size));
    const int64_t num_checksums = num_blocks(size() * token_bytes) +
                                  num_blocks(num_documents() * int64_t{sizeof(int64_t)}) +
                                  num_blocks(mask_.bytes().size());
    const Places places = create_datasets(info, num_checksums);
    std::vector<int64_t> checksums;
    copy(tokens_, places.tokens, token_bytes, checksums);
    copy(documents_, places.documents, sizeof(int64_t), checksums);
    if (has_loss_mask()) copy(mask_.bytes(), places.loss_mask, 1, checksums);
    file_.write_at(places.checksums, std::as_bytes(std::span(checksums)));
    file_.commit();
}

void TokenWriter::describe(h5::Dataset& tokens, const TokenInfo& info) const {
    tokens.set_attribute("format_version",
                         has_loss_mask() ? token_format::kVersionWithLossMask : token_format::kVersion);
    tokens.set_attribute("vocab_size", info.vocab_size);
    tokens.set_attribute("end_of_text", info.end_of_text);
    tokens.set_attribute("tokenizer", info.tokenizer);
    tokens.set_attribute("tokenizer_digest", info.tokenizer_digest);
    tokens.set_attribute(kWriterAttribute, fmt::format("{} {}", kWriterName, version()));
}

TokenWriter::Places TokenWriter::create_datasets(const TokenInfo& info, int64_t num_checksums) const {
    using namespace token_format;
    h5::File file = h5::File::create(file_.partial_path());
    const auto create = [&](const char* name, ElementType type, int64_t count) {
        return file.create_dataset(name, type, std::array{count});
    };
    Places places;
    {
        h5::Dataset tokens = create(kTokens, type_for(info.vocab_size), size());
        describe(tokens, info);
        places.tokens = tokens.offset();
        places.documents = create(kDocuments, ElementType::Int64, num_documents()).offset();
        places.checksums = create(kChecksums, ElementType::Int64, num_checksums).offset();
    }
    if (has_loss_mask()) {
        h5::Dataset mask = create(kLossMask, ElementType::UInt8, num_mask_bytes(mask_.size()));
        mask.set_attribute("counted_tokens", counted_tokens());
        places.loss_mask = mask.offset();
    }
    file.close();
    return places;
}

/// Copies a spool to `offset`, with `element_bytes` for each number, and adds the checksums of its blocks.
template <class Number>
void TokenWriter::copy(const Spool<Number>& spool, int64_t offset, int64_t element_bytes,
                       std::vector<int64_t>& checksums) {
    const int64_t block = kBlockBytes / element_bytes;
    for (int64_t begin = 0; begin < spool.size(); begin += block) {
        throw_if_stop_requested();
        std::vector<std::byte> bytes = spool.read(begin, std::min(block, spool.size() - begin));
        narrow(bytes, spool.stored_bytes(), element_bytes);
        checksums.push_back(token_format::checksum(bytes.data(), std::ssize(bytes)));
        file_.write_at(offset + begin * element_bytes, bytes);
    }
}

}  // namespace argosy::data
