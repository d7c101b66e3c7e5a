#include "data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "h5/file.h"

namespace argosy::data {
namespace {

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
    if (version != kTokenFormatVersion) {
        throw UserError("{} has format version {}; this program reads {}", tokens.place(), version,
                        kTokenFormatVersion);
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

}  // namespace

TokenFile::TokenFile(std::filesystem::path path)
    : path_(std::move(path)),
      located_(locate(path_)),
      bytes_(path_, located_.offset, located_.num_tokens * located_.token_bytes) {}

TokenFile::Located TokenFile::locate(const std::filesystem::path& path) {
    const h5::File file = h5::File::open(path);
    const h5::Dataset tokens = file.open_dataset(kTokenDataset);
    check_layout(tokens);
    return {.info = read_info(tokens),
            .num_tokens = tokens.num_elements(),
            .offset = tokens.offset(),
            .token_bytes = size_bytes(*tokens.type())};
}

void TokenFile::copy(int64_t begin, int64_t count, int64_t* out) const {
    ARGOSY_CHECK(begin >= 0 && count >= 0 && begin + count <= size(), "tokens {} + {} of {}", begin, count,
                 size());
    const std::byte* from = bytes_.data() + begin * located_.token_bytes;
    const int64_t largest =
        located_.token_bytes == 2 ? widen<uint16_t>(from, count, out) : widen<uint32_t>(from, count, out);
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
    const int64_t lead_bytes = offset % ::sysconf(_SC_PAGESIZE);
    mapped_bytes_ = lead_bytes + num_bytes;
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw UserError("cannot open {}: {}", path.string(), std::strerror(errno));
    pages_ = ::mmap(nullptr, mapped_bytes_, PROT_READ, MAP_SHARED, descriptor, offset - lead_bytes);
    const int reason = errno;
    ::close(descriptor);
    if (pages_ == MAP_FAILED)
        throw RunError("cannot map {} into memory: {}", path.string(), std::strerror(reason));
    data_ = static_cast<const std::byte*>(pages_) + lead_bytes;
}

MappedFile::~MappedFile() { ::munmap(pages_, mapped_bytes_); }

}  // namespace argosy::data
