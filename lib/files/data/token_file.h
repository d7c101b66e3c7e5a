// Reads token files: one long stream of token numbers, one document after another, with a checksum of each
// 16 MiB. FORMAT.md specifies the bytes on disk. TokenWriter (token_writer.h) writes a token file.
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

#include "base/raw_file.h"
#include "data/stored_tokens.h"

namespace argosy::data {

/// Checks: whether a block's checksum is verified when the block is first read, or never.
enum class TokenChecks { WhenFirstRead, None };

/// Limits the bytes that are read only to verify checksums: kFreeBytes, and as many as were read as tokens.
/// Random samples of a few KiB would otherwise cost a block of 16 MiB each until all blocks are verified, on
/// every rank. A file read in order is verified wholly. Any thread may call the methods.
class CheckBudget {
  public:
    static constexpr int64_t kFreeBytes = 16 * token_format::kBlockBytes;

    void add(int64_t num_token_bytes) { left_bytes_ += num_token_bytes; }
    /// Whether a block may be verified now. If so, its bytes are counted.
    bool take(int64_t num_bytes);

  private:
    std::atomic<int64_t> left_bytes_{kFreeBytes};
};

/// An open token file, read-only. Any thread may call the methods of a const object.
class TokenFile {
  public:
    /// Opens a file that locate_tokens() has described, perhaps on another rank. Throws UserError if the path
    /// leads to another file here: one with other checksums, or of Megatron with another length. Without a
    /// budget no checksum of a block is verified.
    TokenFile(StoredTokens stored, std::shared_ptr<CheckBudget> budget);

    /// Locates and opens a file, with a budget of its own. Throws UserError as locate_tokens() does, and has
    /// to run on the same thread.
    explicit TokenFile(const std::filesystem::path& path, TokenChecks checks = TokenChecks::WhenFirstRead);

    const std::filesystem::path& path() const { return stored_.path; }
    const TokenInfo& info() const { return stored_.info; }
    const StoredTokens& stored() const { return stored_; }
    int64_t vocab_size() const { return stored_.info.vocab_size; }

    /// Number of tokens in the stream.
    int64_t size() const { return stored_.tokens.num_elements; }

    int64_t num_documents() const;

    /// Copies tokens begin .. begin+count-1 to `out`. Throws UserError if one of them is outside the
    /// vocabulary, and DamageError if a block of the range does not match its
    /// checksum. REQUIRES: 0 <= begin, begin + count <= size().
    void copy(int64_t begin, int64_t count, int64_t* out) const;

    /// Writes -1 to targets[i] for each token begin + i that does not count as a target, of `count` tokens.
    /// A file without a loss mask costs nothing. Throws DamageError and REQUIRES as copy().
    void mask_targets(int64_t begin, int64_t count, int64_t* targets) const;

    /// Writes the positions of tokens begin .. begin+count-1 in their documents to `out`. Positions in the
    /// first document count from `begin`. Throws DamageError and REQUIRES as copy().
    void copy_positions(int64_t begin, int64_t count, int64_t* out) const;

    /// Reads the whole file and returns what is wrong with it, a line for each fault; of damaged blocks at
    /// most `kMaxFaults`. Calls `progress` with the share that is read, from time to time.
    static constexpr size_t kMaxFaults = 100;
    std::vector<std::string> find_faults(const std::function<void(double share)>& progress) const;

  private:
    /// The file that holds the other arrays than the tokens.
    const RawFile& index() const { return index_of_megatron_ ? *index_of_megatron_ : tokens_; }
    int64_t number(const StoredArray& array, int64_t element) const;
    bool is_sound(const StoredArray& array, int64_t block) const;
    std::optional<std::string> vocabulary_fault(int64_t begin, int64_t count, int64_t* out) const;
    void verify(const StoredArray& array, int64_t begin_byte, int64_t end_byte) const;
    int64_t document_start(int64_t document) const;
    int64_t first_document_after(int64_t token) const;
    std::optional<std::string> documents_fault() const;
    std::optional<std::string> loss_mask_fault() const;

    StoredTokens stored_;
    RawFile tokens_;
    std::optional<RawFile> index_of_megatron_;
    std::vector<int64_t> checksums_;
    std::shared_ptr<CheckBudget> budget_;
    /// For each checksum, whether it was found to match. Null if nothing is verified.
    std::unique_ptr<std::atomic<bool>[]> verified_;
};

}  // namespace argosy::data
