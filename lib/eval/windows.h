// Reads records of tokens, cuts them into windows, and groups windows into batches. A window holds
// consecutive tokens of one record, which the model processes as one sequence.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "model/layer.h"

namespace argosy::eval {

using Tokens = std::vector<uint32_t>;

/// The inputs are the tokens [begin, begin + num_inputs) of a record. Each input predicts the token after it.
/// Only the last `num_scored` predictions count; the inputs before them are context.
struct Window {
    int64_t record = 0;
    int64_t begin = 0, num_inputs = 0, num_scored = 0;
    bool operator==(const Window&) const = default;
};

/// Appends windows of at most `max_inputs` inputs. Together the windows predict each token of the record
/// once, except the first token. The rule is the rolling window of lm-evaluation-harness with the first token
/// as prefix: the scored parts are disjoint, and the last window begins early enough to hold as much context
/// as fits. REQUIRES: num_tokens >= 2 and max_inputs >= 1.
void append_windows(int64_t record, int64_t num_tokens, int64_t max_inputs, std::vector<Window>& windows);

struct WindowBatch {
    std::vector<Window> windows;
    int64_t seq_len() const { return windows.front().num_inputs; }
    int64_t num_tokens() const { return static_cast<int64_t>(windows.size()) * seq_len(); }
};

/// Sorts the windows by length, longest first, and fills batches in this order. A batch is padded to its
/// longest window and takes as many windows as fit into `batch_tokens`, but at least one and at most 65535.
std::vector<WindowBatch> in_batches(std::vector<Window> windows, int64_t batch_tokens);

/// Pads shorter windows at their end. Attention is causal, so that padding does not change the results of
/// earlier tokens. Padded targets do not count.
model::Batch make_batch(const WindowBatch& batch, std::span<const Tokens> records,
                        c10::Device device = c10::kCPU);

// A task is a JSONL file of records {"tokens": [...]}. The first token of a record is context.

struct TokenTask {
    std::string name;  // the file's name, without folder and extension; "stdin" for "-"
    std::filesystem::path path;
    std::vector<Tokens> records;
    std::vector<std::string> places;  // "file:line" of each record
    int64_t num_short = 0;    // records of fewer than two tokens, which predict nothing; not in `records`
    std::string first_short;  // "file:line" of the first of them
};

/// UserError, naming file and line, for a record that is broken, of another kind or outside the vocabulary;
/// also for a file without records that predict a token, and for two files with the same name.
std::vector<TokenTask> read_token_tasks(const std::vector<std::filesystem::path>& paths, int64_t vocab_size);

}  // namespace argosy::eval
