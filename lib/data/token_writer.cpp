#include "data/token_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/program.h"
#include "h5/file.h"

namespace argosy::data {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr const char* kWriter = "written_by";
constexpr const char* kWrittenBy = "argosy prepare-data";

ElementType type_for(int64_t vocab_size) {
    return vocab_size <= 65536 ? ElementType::UInt16 : ElementType::UInt32;
}

std::filesystem::path spool_path(std::filesystem::path path) { return path += ".spool.partial"; }

bool is_written_here(const std::filesystem::path& path) {
    try {
        const std::string writer = h5::File::open(path).open_dataset(kTokenDataset).string_attribute(kWriter);
        return writer.starts_with(kWrittenBy);
    } catch (const Error&) {
        return false;  // not an HDF5 file, or one with other contents
    }
}

/// Halves the width of the tokens in place; returns the remaining number of bytes.
int64_t narrow(std::byte* tokens, int64_t num_bytes) {
    for (int64_t from = 0; from < num_bytes; from += sizeof(uint32_t)) {
        std::memcpy(tokens + from / 2, tokens + from,
                    sizeof(uint16_t));  // little-endian: the low half comes first
    }
    return num_bytes / 2;
}

}  // namespace

TokenWriter::TokenWriter(std::filesystem::path path, int64_t max_vocab_size)
    : path_(std::move(path)),
      max_vocab_size_(max_vocab_size),
      spool_token_bytes_(size_bytes(type_for(max_vocab_size))),
      file_(path_, is_written_here),
      spool_(RawFile::create_nameless(spool_path(path_))) {}

void TokenWriter::append(std::span<const uint32_t> tokens) {
    buffer_.insert(buffer_.end(), tokens.begin(), tokens.end());
    size_ += static_cast<int64_t>(tokens.size());
    if (static_cast<int64_t>(buffer_.size()) * spool_token_bytes_ >= kBlockBytes) flush();
}

void TokenWriter::commit(const TokenInfo& info) {
    ARGOSY_CHECK(info.vocab_size <= max_vocab_size_, "vocabulary {} over {}", info.vocab_size,
                 max_vocab_size_);
    if (size_ == 0) throw UserError("there are no tokens to write to {}", path_.string());
    flush();
    copy_spool(create_dataset(info), size_bytes(type_for(info.vocab_size)));
    file_.commit();
}

void TokenWriter::flush() {
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(buffer_));
    auto num_bytes = static_cast<int64_t>(bytes.size());
    if (spool_token_bytes_ == sizeof(uint16_t)) num_bytes = narrow(bytes.data(), num_bytes);
    spool_.write_at(spool_bytes_, bytes.first(num_bytes));
    spool_bytes_ += num_bytes;
    buffer_.clear();
}

int64_t TokenWriter::create_dataset(const TokenInfo& info) const {
    h5::File file = h5::File::create(file_.partial_path());
    int64_t offset = 0;
    {
        h5::Dataset tokens = file.create_dataset(kTokenDataset, type_for(info.vocab_size), std::array{size_});
        tokens.set_attribute("format_version", kTokenFormatVersion);
        tokens.set_attribute("vocab_size", info.vocab_size);
        tokens.set_attribute("end_of_text", info.end_of_text);
        tokens.set_attribute("tokenizer", info.tokenizer);
        tokens.set_attribute(kWriter, fmt::format("{} {}", kWrittenBy, version()));
        offset = tokens.offset();
    }
    file.close();
    return offset;
}

void TokenWriter::copy_spool(int64_t offset, int64_t token_bytes) {
    std::vector<std::byte> block(kBlockBytes);
    for (int64_t from = 0; from < spool_bytes_; from += kBlockBytes) {
        throw_if_stop_requested();
        int64_t num_bytes = std::min(kBlockBytes, spool_bytes_ - from);
        spool_.read_at(from, std::span(block).first(num_bytes));
        if (token_bytes < spool_token_bytes_) num_bytes = narrow(block.data(), num_bytes);
        file_.write_at(offset, std::span(block).first(num_bytes));
        offset += num_bytes;
    }
}

}  // namespace argosy::data
