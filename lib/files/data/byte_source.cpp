#include "data/byte_source.h"

#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <poll.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/output.h"
#include "base/program.h"
#include "base/raw_file.h"

namespace argosy::data {
namespace {

constexpr std::string_view kGzipMark = "\x1f\x8b", kZstandardMark = "\x28\xb5\x2f\xfd";
// Parallel compressors begin with a frame to be skipped, whose first byte is 0x50 .. 0x5f.
constexpr std::string_view kSkippedFrameMark = "\x2a\x4d\x18";
constexpr std::string_view kBzip2Mark = "BZh", kXzMark{"\xFD\x37zXZ\0", 6};
constexpr size_t kInputBufferBytes = 1 << 17;

/// The mark, a digit for the size of blocks, and the begin of a block or of the end.
bool is_bzip2(std::string_view first) {
    return first.starts_with(kBzip2Mark) && first.size() >= 5 && first[3] >= '1' && first[3] <= '9' &&
           (first[4] == '1' || first[4] == '\x17');
}

Descriptor open_input(const std::filesystem::path& path) {
    if (is_standard_stream(path)) return Descriptor(dup(STDIN_FILENO));
    std::error_code unknown;  // opening the file reports why
    if (std::filesystem::is_directory(path, unknown))
        throw UserError("cannot read {}: it is a folder", path.string());
    // O_NONBLOCK: a pipe opens before it has a writer. Input::read_some() waits for one.
    return Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

}  // namespace

/// The stored bytes of the input, read ahead into a buffer.
class ByteSource::Input {
  public:
    Input(const std::filesystem::path& path, std::string name)
        : name_(std::move(name)), descriptor_(open_input(path)), buffer_(kInputBufferBytes) {
        if (descriptor_.number() < 0) throw UserError("cannot open {}: {}", name_, std::strerror(errno));
    }

    const std::string& name() const { return name_; }
    int64_t num_read() const { return num_read_; }

    /// The bytes that are read and not yet taken. Empty only at the end of the input.
    std::span<const char> peek() {
        if (begin_ == end_) {
            begin_ = 0;
            end_ = read_some(buffer_);
        }
        return std::span(buffer_).subspan(begin_, end_ - begin_);
    }
    void take(size_t count) { begin_ += count; }

    /// The first bytes of the input, at most `count`. REQUIRES: nothing was taken.
    std::string_view first_bytes(size_t count) {
        while (end_ < count) {
            const size_t num_read = read_some(std::span(buffer_).subspan(end_));
            if (num_read == 0) break;
            end_ += num_read;
        }
        return std::string_view(buffer_.data(), end_).substr(0, count);
    }

    void seek(int64_t offset) {
        if (lseek(descriptor_.number(), offset, SEEK_SET) != offset)
            throw UserError("cannot read {} from byte {}: {}", name_, offset, std::strerror(errno));
        begin_ = end_ = 0;
        next_byte_ = offset;
    }

  private:
    /// read() alone would sleep on after a stop signal that arrived just before it.
    size_t read_some(std::span<char> bytes) {
        constexpr int kMillisecondsBetweenLooks = 100;
        pollfd waited{.fd = descriptor_.number(), .events = POLLIN, .revents = 0};
        while (poll(&waited, 1, kMillisecondsBetweenLooks) == 0) throw_if_stop_requested();
        throw_if_stop_requested();
        const ssize_t count = ::read(descriptor_.number(), bytes.data(), bytes.size());
        if (count < 0) {
            throw_if_stop_requested();
            throw RunError("cannot read {} beyond byte {}: {}", name_, next_byte_, std::strerror(errno));
        }
        num_read_ += count;
        next_byte_ += count;
        return static_cast<size_t>(count);
    }

    std::string name_;
    Descriptor descriptor_;
    std::vector<char> buffer_;
    size_t begin_ = 0, end_ = 0;  // the part of the buffer that is not taken
    int64_t num_read_ = 0;
    int64_t next_byte_ = 0;  // the place in the input from which the next read begins
};

class ByteSource::Decoder {
  public:
    explicit Decoder(Input& input) : input_(input) {}
    virtual ~Decoder() = default;
    virtual Compression compression() const = 0;
    /// Writes some bytes, at least one unless the input is at its end.
    virtual size_t read_some(std::span<char> bytes) = 0;

  protected:
    [[noreturn]] void refuse(const char* what) const {
        throw DamageError("{} is damaged or incomplete: {} (near byte {})", input_.name(), what,
                          input_.num_read());
    }

    Input& input_;
};

class ByteSource::PlainDecoder : public Decoder {
  public:
    using Decoder::Decoder;
    Compression compression() const override { return Compression::None; }
    size_t read_some(std::span<char> bytes) override {
        const auto available = input_.peek();
        const size_t count = std::min(bytes.size(), available.size());
        std::copy_n(available.data(), count, bytes.data());
        input_.take(count);
        return count;
    }
};

class ByteSource::GzipDecoder : public Decoder {
  public:
    explicit GzipDecoder(Input& input) : Decoder(input) {
        constexpr int kWindowBits = 15, kWithGzipHeader = 16;
        ARGOSY_CHECK(inflateInit2(&stream_, kWindowBits + kWithGzipHeader) == Z_OK);
    }
    ~GzipDecoder() override { inflateEnd(&stream_); }
    Compression compression() const override { return Compression::Gzip; }

    size_t read_some(std::span<char> bytes) override {
        for (;;) {
            const auto available = input_.peek();
            if (available.empty()) {
                if (!between_members_) refuse("it ends within gzip data");
                return 0;
            }
            if (between_members_) inflateReset(&stream_);
            between_members_ = false;
            // inflate() does not write to its input.
            stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(available.data()));
            stream_.avail_in = static_cast<uInt>(available.size());
            stream_.next_out = reinterpret_cast<Bytef*>(bytes.data());
            stream_.avail_out = static_cast<uInt>(bytes.size());
            const int status = inflate(&stream_, Z_NO_FLUSH);
            input_.take(available.size() - stream_.avail_in);
            between_members_ = status == Z_STREAM_END;
            if (status != Z_OK && !between_members_) refuse(stream_.msg ? stream_.msg : "bad gzip data");
            if (const size_t count = bytes.size() - stream_.avail_out; count > 0) return count;
        }
    }

  private:
    z_stream stream_{};
    bool between_members_ = false;
};

class ByteSource::ZstandardDecoder : public Decoder {
  public:
    explicit ZstandardDecoder(Input& input)
        : Decoder(input), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
        ARGOSY_CHECK(stream_ != nullptr);
        // zstd --long needs a window of up to 2 GiB, which the library would refuse.
        const ZSTD_bounds window = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
        ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, window.upperBound);
    }
    Compression compression() const override { return Compression::Zstandard; }

    size_t read_some(std::span<char> bytes) override {
        for (;;) {
            // Also without new input, because the decoder may hold bytes for which the last call had no room.
            const auto available = input_.peek();
            ZSTD_inBuffer in{available.data(), available.size(), 0};
            ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
            const size_t left = ZSTD_decompressStream(stream_.get(), &out, &in);
            if (ZSTD_isError(left)) refuse(ZSTD_getErrorName(left));
            input_.take(in.pos);
            if (in.pos > 0 || out.pos > 0) within_frame_ = left != 0;
            if (out.pos > 0) return out.pos;
            if (available.empty()) {
                if (within_frame_) refuse("it ends within a Zstandard frame");
                return 0;
            }
        }
    }

  private:
    std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
    bool within_frame_ = true;
};

class ByteSource::Bzip2Decoder : public Decoder {
  public:
    explicit Bzip2Decoder(Input& input) : Decoder(input) { begin_stream(); }
    ~Bzip2Decoder() override { BZ2_bzDecompressEnd(&stream_); }
    Compression compression() const override { return Compression::Bzip2; }

    size_t read_some(std::span<char> bytes) override {
        for (;;) {
            const auto available = input_.peek();
            if (available.empty()) {
                if (!between_streams_) refuse("it ends within bzip2 data");
                return 0;
            }
            if (between_streams_) {
                BZ2_bzDecompressEnd(&stream_);
                begin_stream();
            }
            stream_.next_in = const_cast<char*>(available.data());  // which the library only reads
            stream_.avail_in = static_cast<unsigned>(available.size());
            stream_.next_out = bytes.data();
            stream_.avail_out = static_cast<unsigned>(bytes.size());
            const int status = BZ2_bzDecompress(&stream_);
            input_.take(available.size() - stream_.avail_in);
            between_streams_ = status == BZ_STREAM_END;
            if (status != BZ_OK && !between_streams_) refuse("bad bzip2 data");
            if (const size_t count = bytes.size() - stream_.avail_out; count > 0) return count;
        }
    }

  private:
    void begin_stream() {
        stream_ = {};
        ARGOSY_CHECK(BZ2_bzDecompressInit(&stream_, 0, 0) == BZ_OK);
        between_streams_ = false;
    }

    bz_stream stream_{};
    bool between_streams_ = false;
};

class ByteSource::XzDecoder : public Decoder {
  public:
    explicit XzDecoder(Input& input) : Decoder(input) {
        ARGOSY_CHECK(lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_CONCATENATED) == LZMA_OK);
    }
    ~XzDecoder() override { lzma_end(&stream_); }
    Compression compression() const override { return Compression::Xz; }

    size_t read_some(std::span<char> bytes) override {
        for (;;) {
            const auto available = input_.peek();
            stream_.next_in = reinterpret_cast<const uint8_t*>(available.data());
            stream_.avail_in = available.size();
            stream_.next_out = reinterpret_cast<uint8_t*>(bytes.data());
            stream_.avail_out = bytes.size();
            const lzma_ret status = lzma_code(&stream_, available.empty() ? LZMA_FINISH : LZMA_RUN);
            input_.take(available.size() - stream_.avail_in);
            if (status == LZMA_BUF_ERROR && available.empty()) refuse("it ends within xz data");
            if (status != LZMA_OK && status != LZMA_STREAM_END) refuse("bad xz data");
            const size_t count = bytes.size() - stream_.avail_out;
            if (count > 0 || status == LZMA_STREAM_END) return count;
        }
    }

  private:
    lzma_stream stream_ = LZMA_STREAM_INIT;
};

/// Waits for the first bytes of the input at the first call.
ByteSource::Decoder& ByteSource::decoder() {
    if (decoder_) return *decoder_;
    const std::string_view longest = input_->first_bytes(kXzMark.size());
    const std::string_view first = longest.substr(0, kZstandardMark.size());
    const bool is_skipped =
        !first.empty() && (first[0] & 0xf0) == 0x50 && first.substr(1) == kSkippedFrameMark;
    if (first.starts_with(kGzipMark)) {
        decoder_ = std::make_unique<GzipDecoder>(*input_);
    } else if (is_skipped || first == kZstandardMark) {
        decoder_ = std::make_unique<ZstandardDecoder>(*input_);
    } else if (longest == kXzMark) {
        decoder_ = std::make_unique<XzDecoder>(*input_);
    } else if (is_bzip2(longest)) {
        decoder_ = std::make_unique<Bzip2Decoder>(*input_);
    } else {
        decoder_ = std::make_unique<PlainDecoder>(*input_);
    }
    return *decoder_;
}

ByteSource::ByteSource(const std::filesystem::path& path)
    : name_(is_standard_stream(path) ? "stdin" : path.string()),
      input_(std::make_unique<Input>(path, name_)) {}

ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&&) noexcept = default;

Compression ByteSource::compression() { return decoder().compression(); }

void ByteSource::seek(int64_t offset) {
    ARGOSY_CHECK(compression() == Compression::None);
    input_->seek(offset);
    at_begin_ = false;
}

size_t ByteSource::read(std::span<char> bytes) {
    constexpr size_t kMaxBytes = size_t{1} << 30;  // zlib counts with 32 bits
    const size_t count = decoder().read_some(bytes.first(std::min(bytes.size(), kMaxBytes)));
    if (std::exchange(at_begin_, false)) refuse_binary({bytes.data(), count});
    return count;
}

void ByteSource::refuse_binary(std::string_view first) {
    const std::string kind = kind_of_content(first);
    if (kind.empty()) return;
    const std::string ending = std::filesystem::path(name_).extension();
    const bool is_compressed_by_name = std::ranges::find(kCompressedNames, ending) != kCompressedNames.end();
    if (compression() == Compression::None && is_compressed_by_name) {
        throw DamageError(
            "{} is damaged or incomplete: its name ends in {}, but its first bytes are not those of {} data",
            name_, ending, ending.substr(1));
    }
    throw UserError("{} {} {}; it must be text in UTF-8", name_,
                    compression() == Compression::None ? "is" : "holds", kind);
}

int64_t ByteSource::stored_bytes_read() const { return input_->num_read(); }

bool LineReader::next(std::string_view& line) {
    size_t searched = 0;
    for (;;) {
        const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
        size_t size = rest.find('\n', searched);
        searched = rest.size();
        const bool has_break = size != std::string_view::npos;
        if (!has_break) {
            if (read_more()) continue;
            if (rest.empty()) return false;
            size = rest.size();
        }
        line = std::string_view(buffer_.data() + begin_, size);
        begin_ += size + (has_break ? 1 : 0);
        num_bytes_ += static_cast<int64_t>(size + (has_break ? 1 : 0));
        return true;
    }
}

/// Appends bytes to the buffer. Returns false at the end of the input.
bool LineReader::read_more() {
    constexpr size_t kReadBytes = 1 << 18;
    if (begin_ > 0) {
        std::copy(buffer_.begin() + begin_, buffer_.begin() + end_, buffer_.begin());
        end_ -= begin_;
        begin_ = 0;
    }
    if (buffer_.size() < end_ + kReadBytes) buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadBytes));
    const size_t count = source_.read(std::span(buffer_).subspan(end_));
    end_ += count;
    return count > 0;
}

}  // namespace argosy::data
