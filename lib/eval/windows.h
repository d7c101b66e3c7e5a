// Records of tokens, cut into windows that the model reads at once, and windows in batches.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"

namespace argosy::eval {

using Tokens = std::vector<uint32_t>;

/// Inputs [begin, begin + num_inputs) of a record. Each predicts the token after it; the last `num_scored`
/// predictions count, the inputs before are context.
struct Window {
    int64_t record = 0;
    int64_t begin = 0, num_inputs = 0, num_scored = 0;
    bool operator==(const Window&) const = default;
};

/// Appends windows of at most `longest` inputs in which each token of the record but the first is predicted
/// once: as lm-evaluation-harness rolls over a text whose prefix is the first token, disjoint windows, the
/// last of which reaches back for as much context as it can hold. REQUIRES: two tokens at least.
void append_windows(int64_t record, int64_t num_tokens, int64_t longest, std::vector<Window>& windows);

struct WindowBatch {
    std::vector<Window> windows;
    int64_t seq_len() const { return windows.front().num_inputs; }
    int64_t num_tokens() const { return static_cast<int64_t>(windows.size()) * seq_len(); }
};

/// Longest first, as many in a batch as fit into `batch_tokens` padded to its longest, but one at least and
/// 65535 at most.
std::vector<WindowBatch> in_batches(std::vector<Window> windows, int64_t batch_tokens);

/// Shorter windows are padded behind their end, which no token before it sees, with targets that do not
/// count.
model::Batch make_batch(const WindowBatch& batch, std::span<const Tokens> records,
                        c10::Device device = c10::kCPU);

}  // namespace argosy::eval
