// A token file: one long stream of token numbers in HDF5, one document after another, with a checksum of each
// 16 MiB. FORMAT.md specifies the bytes on disk. TokenFile reads a token file, TokenWriter (token_writer.h)
// writes one. The constructor calls HDF5, so it runs on the one thread that h5/dataset.h requires.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace argosy::data {

/// A range of a file, mapped into memory for reading as long as the object lives.
class MappedFile {
  public:
    /// Throws UserError if the file ends before offset + num_bytes. REQUIRES: num_bytes > 0.
    MappedFile(const std::filesystem::path& path, int64_t offset, int64_t num_bytes);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;

    /// The byte at `offset`.
    const std::byte* data() const { return data_; }

  private:
    void* pages_;
    int64_t mapped_bytes_;
    const std::byte* data_;
};

inline constexpr int64_t kNoEndOfText = -1;

/// More than any tokenizer has, and small enough for a counter per token in memory.
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

/// A token file's description of its tokens.
struct TokenInfo {
    int64_t vocab_size = 0;
    int64_t end_of_text = kNoEndOfText;  // the token that ends a document, or kNoEndOfText
    std::string tokenizer;               // its name; "none" if the input was token numbers
    std::string tokenizer_digest;        // of the tokenizer's file, in hex; empty if it has none
};

/// The format on disk, shared by the reader and the writer.
namespace token_format {
inline constexpr int64_t kVersion = 2, kVersionWithoutChecks = 1;
inline constexpr const char *kTokens = "tokens", *kDocuments = "document_offsets", *kChecksums = "checksums";
inline constexpr int64_t kBlockBytes = int64_t{1}
                                       << 24;  // of tokens or of document offsets, for each checksum

inline int64_t num_blocks(int64_t num_bytes) { return (num_bytes + kBlockBytes - 1) / kBlockBytes; }
int64_t checksum(const std::byte* block, int64_t num_bytes);
}  // namespace token_format

/// Checks: whether a block's checksum is verified when the block is first read, or never.
enum class TokenChecks { WhenFirstRead, None };

/// An open token file, memory-mapped and read-only. Any thread may call `copy`.
class TokenFile {
  public:
    /// Throws UserError if the file is missing, not HDF5, or not a token file of a known version.
    explicit TokenFile(std::filesystem::path path, TokenChecks checks = TokenChecks::WhenFirstRead);

    const std::filesystem::path& path() const { return path_; }
    const TokenInfo& info() const { return stored_.info; }
    int64_t vocab_size() const { return stored_.info.vocab_size; }

    /// Number of tokens in the stream.
    int64_t size() const { return stored_.tokens.num_elements; }

    /// Number of documents; none in a file of version 1, which does not store them.
    std::optional<int64_t> num_documents() const;

    /// Copies tokens begin .. begin+count-1 to `out`. Throws UserError if one of them is outside the
    /// vocabulary, and DamageError if a block of the range does not match its
    /// checksum. REQUIRES: 0 <= begin, begin + count <= size().
    void copy(int64_t begin, int64_t count, int64_t* out) const;

    /// Whether the file says where documents begin: by its table of documents or, in a file of version 1, by
    /// the token that ends one.
    bool knows_documents() const { return documents_ || stored_.info.end_of_text != kNoEndOfText; }

    /// Writes the positions of tokens begin .. begin+count-1 in their documents to `out`. Positions in the
    /// first document count from `begin`. Throws DamageError as copy() does. REQUIRES: as copy(), and
    /// knows_documents().
    void copy_positions(int64_t begin, int64_t count, int64_t* out) const;

    /// Reads the whole file and returns what is wrong with it, a line for each fault; of damaged blocks at
    /// most `kMaxFaults`. Calls `progress` with the share that is read, from time to time.
    static constexpr size_t kMaxFaults = 100;
    std::vector<std::string> find_faults(const std::function<void(double share)>& progress) const;

  private:
    /// A dataset's place in the file.
    struct Array {
        int64_t num_elements = 0, element_bytes = 0, offset = 0;
        int64_t first_checksum = 0;  // the number of its first block's checksum
        int64_t num_bytes() const { return num_elements * element_bytes; }
        const char* content = "";  // for messages: what an element is
    };
    struct Stored {
        TokenInfo info;
        Array tokens;
        Array documents;  // no elements in version 1, and no checksums
        std::vector<int64_t> checksums;
    };
    static Stored locate(const std::filesystem::path& path);

    bool is_sound(const Array& array, const std::byte* bytes, int64_t block) const;
    std::optional<std::string> vocabulary_fault(int64_t begin, int64_t count, int64_t* out) const;
    void verify(const Array& array, const std::byte* bytes, int64_t begin_byte, int64_t end_byte) const;
    int64_t document_start(int64_t document) const;
    int64_t first_document_after(int64_t token) const;
    std::optional<std::string> documents_fault() const;

    std::filesystem::path path_;
    Stored stored_;
    MappedFile bytes_;                     // of the tokens
    std::optional<MappedFile> documents_;  // offsets of the documents; none in version 1
    /// For each checksum, whether it was found to match. Empty if nothing is verified.
    std::unique_ptr<std::atomic<bool>[]> verified_;
};

}  // namespace argosy::data
