// Reads the bytes of an input file or of stdin, and decompresses them. The first bytes of the input tell
// gzip, Zstandard, bzip2 and xz from plain bytes, so its name does not matter. Each format may consist of
// several members, frames or streams, as parallel compressors write them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::data {

/// How an input is stored.
enum class Compression { None, Gzip, Zstandard, Bzip2, Xz };

/// The endings of the names of compressed inputs.
inline constexpr std::array<std::string_view, 4> kCompressedNames = {".gz", ".zst", ".bz2", ".xz"};

class ByteSource {
  public:
    /// Opens a file, or stdin if the path is "-". UserError if it cannot be opened.
    explicit ByteSource(const std::filesystem::path& path);
    ~ByteSource();
    ByteSource(ByteSource&&) noexcept;

    /// The path in messages: "stdin" for "-".
    const std::string& name() const { return name_; }
    /// Waits for the first bytes of a pipe.
    Compression compression();

    /// Continues at byte `offset` of the file. REQUIRES: a regular file without compression.
    void seek(int64_t offset);

    /// Writes as many bytes as are there, and returns their number: 0 only at the end of the input. Throws
    /// DamageError if compressed bytes are damaged or end too early, UserError if the input is not text, and
    /// RunError after a signal that asks a tool to end (base/program.h).
    size_t read(std::span<char> bytes);

    /// The number of bytes taken from the input so far, as they are stored.
    int64_t stored_bytes_read() const;

  private:
    class Input;
    class Decoder;
    class PlainDecoder;
    class GzipDecoder;
    class ZstandardDecoder;
    class Bzip2Decoder;
    class XzDecoder;
    Decoder& decoder();
    void refuse_binary(std::string_view first);

    std::string name_;
    std::unique_ptr<Input> input_;
    std::unique_ptr<Decoder> decoder_;  // none before the first read
    bool at_begin_ = true;              // no byte was read
};

/// Splits the bytes of an input into lines. A line without a line break may end the input.
class LineReader {
  public:
    explicit LineReader(const std::filesystem::path& path) : source_(path) {}

    ByteSource& source() { return source_; }
    const ByteSource& source() const { return source_; }

    /// Reads the next line, without its line break. `line` is valid until the next call. Returns false at the
    /// end of the input.
    bool next(std::string_view& line);

    /// The number of bytes that all lines so far had, with their line breaks.
    int64_t num_bytes() const { return num_bytes_; }

  private:
    bool read_more();

    ByteSource source_;
    std::vector<char> buffer_;
    size_t begin_ = 0, end_ = 0;  // the part of the buffer that no line has had
    int64_t num_bytes_ = 0;
};

}  // namespace argosy::data
