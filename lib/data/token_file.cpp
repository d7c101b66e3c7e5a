#include "data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "h5/file.h"

namespace argosy::data {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr const char* kDatasetName = "tokens";

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

TokenInfo read_info(const h5::Dataset& tokens) {
    const int64_t version = tokens.integer_attribute("format_version");
    if (version != kFormatVersion) {
        throw UserError("{} has format version {}; this program reads {}", tokens.place(), version,
                        kFormatVersion);
    }
    TokenInfo info{.vocab_size = tokens.integer_attribute("vocab_size"),
                   .end_of_text = tokens.integer_attribute("end_of_text"),
                   .tokenizer = tokens.string_attribute("tokenizer")};
    if (info.vocab_size < 1 || info.vocab_size > kMaxVocabSize) {
        throw UserError("{} has vocab_size {}; it must be in 1 .. {}", tokens.place(), info.vocab_size,
                        kMaxVocabSize);
    }
    return info;
}

constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr const char* kWriterAttribute = "written_by";
constexpr const char* kWriterName = "argosy prepare-data";

ElementType type_for(int64_t vocab_size) {
    return vocab_size <= 65536 ? ElementType::UInt16 : ElementType::UInt32;
}

std::filesystem::path spool_path(std::filesystem::path path) { return path += ".spool.partial"; }

bool is_from_token_writer(const std::filesystem::path& path) {
    try {
        const std::string writer =
            h5::File::open(path).open_dataset(kDatasetName).string_attribute(kWriterAttribute);
        return writer.starts_with(kWriterName);
    } catch (const Error&) {
        return false;  // not an HDF5 file, or one with other contents
    }
}

/// Narrows uint32_t tokens to uint16_t in place; returns the new number of bytes.
int64_t narrow(std::byte* tokens, int64_t num_bytes) {
    for (int64_t from = 0; from < num_bytes; from += sizeof(uint32_t)) {
        std::memcpy(tokens + from / 2, tokens + from,
                    sizeof(uint16_t));  // little-endian: the low half comes first
    }
    return num_bytes / 2;
}

}  // namespace

TokenFile::TokenFile(std::filesystem::path path)
    : path_(std::move(path)),
      stored_(locate(path_)),
      bytes_(path_, stored_.offset, stored_.num_tokens * stored_.token_bytes) {}

TokenFile::StoredTokens TokenFile::locate(const std::filesystem::path& path) {
    const h5::File file = h5::File::open(path);
    const h5::Dataset tokens = file.open_dataset(kDatasetName);
    check_layout(tokens);
    return {.info = read_info(tokens),
            .num_tokens = tokens.num_elements(),
            .offset = tokens.offset(),
            .token_bytes = size_bytes(*tokens.type())};
}

void TokenFile::copy(int64_t begin, int64_t count, int64_t* out) const {
    ARGOSY_CHECK(begin >= 0 && count >= 0 && begin + count <= size(), "tokens {} + {} of {}", begin, count,
                 size());
    const std::byte* from = bytes_.data() + begin * stored_.token_bytes;
    const int64_t largest =
        stored_.token_bytes == 2 ? widen<uint16_t>(from, count, out) : widen<uint32_t>(from, count, out);
    if (count > 0 && largest >= vocab_size()) {
        throw UserError("{}: token {} among tokens {} .. {} lies outside the vocabulary of {}",
                        path_.string(), largest, begin, begin + count - 1, vocab_size());
    }
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

TokenWriter::TokenWriter(std::filesystem::path path, int64_t max_vocab_size)
    : path_(std::move(path)),
      max_vocab_size_(max_vocab_size),
      spool_token_bytes_(size_bytes(type_for(max_vocab_size))),
      file_(path_, is_from_token_writer),
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
        h5::Dataset tokens = file.create_dataset(kDatasetName, type_for(info.vocab_size), std::array{size_});
        tokens.set_attribute("format_version", kFormatVersion);
        tokens.set_attribute("vocab_size", info.vocab_size);
        tokens.set_attribute("end_of_text", info.end_of_text);
        tokens.set_attribute("tokenizer", info.tokenizer);
        tokens.set_attribute(kWriterAttribute, fmt::format("{} {}", kWriterName, version()));
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
