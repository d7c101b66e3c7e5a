// Makes a token file from inputs, on threads and processes. Large inputs are divided into pieces; each
// process makes parts from pieces (data/token_parts.h), and one process joins the parts. The token file
// depends only on the inputs and on the options up to `on_error`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/encode.h"
#include "data/token_parts.h"
#include "tokenizer/tokenizer.h"

namespace argosy::data {

struct TokenizeOptions {
    std::vector<std::filesystem::path> inputs;
    std::filesystem::path output;
    std::optional<int64_t> vocab_size = {};  // for {"tokens"} records; default: their largest token plus one
    InputOptions input = {};
    const tokenizer::ChatTemplate* chat_template = nullptr;  // for {"messages"} records
    OnError on_error = OnError::Fail;

    int num_threads = 1;
    int64_t piece_bytes = int64_t{1} << 30;  // of the inputs, as they are stored
    /// Called by the thread that calls, once in a while: the share that is done of what this process does,
    /// the bytes of the inputs that it has read, and what it does: "tokenizing" or "joining".
    std::function<void(double share, int64_t num_bytes, const char* what)> progress = nullptr;
};

struct TokenizeResult {
    int64_t num_tokens = 0, num_documents = 0, vocab_size = 0;
    int64_t counted_tokens = 0;  // tokens that count as targets
    int64_t num_skipped = 0;     // records that could not be read
    int64_t num_repaired = 0;    // texts with malformed UTF-8, which is read as U+FFFD
};

/// One process of several that make a token file together. Every process makes one from the same options.
/// Texts are tokenized as data/encode.h says; tokens stay unchanged.
class TokenizeJob {
  public:
    /// Throws UserError for options that do not fit each other and for inputs that cannot be opened.
    /// REQUIRES: `options` and `tokenizer` outlive this object.
    TokenizeJob(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer);
    ~TokenizeJob();

    // In this order: process 0 calls begin(), then each process calls make_parts(), then process 0 calls
    // finish().

    /// Opens the output, so that one that cannot be written is refused before the work, and prepares the
    /// folder of the parts if there are several pieces. An earlier job that was interrupted left its parts
    /// there.
    void begin();
    /// Makes the parts of each piece i with i % num_processes == process, unless they are there.
    void make_parts(int process, int num_processes);
    /// Joins the parts, in the order of the inputs. Throws UserError if they mix kinds of records, or if
    /// records were left out of a part, which this run must not.
    TokenizeResult finish();

  private:
    class Builder;
    using Piece = std::vector<InputRange>;
    std::vector<Piece> plan_pieces() const;
    void refuse_streams() const;
    std::string plan_text() const;
    void encode(const Piece& piece, int64_t bytes_before, int64_t bytes_to_read,
                const std::function<void(const EncodedDocuments&)>& take) const;
    void refuse_if_skipped(const std::filesystem::path& part) const;
    [[noreturn]] void refuse_mixed_piece(const Piece& piece, RecordKind before) const;
    void show_progress(int64_t done, int64_t all, int64_t num_bytes, const char* what) const;

    const TokenizeOptions& options_;
    const tokenizer::Tokenizer& tokenizer_;
    std::vector<Piece> pieces_;
    PartFolder parts_;
    std::unique_ptr<Builder> builder_;  // of process 0
};

}  // namespace argosy::data
