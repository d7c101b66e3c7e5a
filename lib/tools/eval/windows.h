// Cuts records of tokens into windows, and groups windows into batches. A window holds consecutive tokens of
// one record, which the model processes as one sequence.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace argosy::eval {

using Tokens = std::vector<uint32_t>;

/// The inputs are the tokens [begin, begin + num_inputs) of a record. Each input predicts the token after it.
/// Only the last `num_scored` predictions count; the inputs before them are context.
struct Window {
    int64_t record = 0;
    int64_t begin = 0, num_inputs = 0, num_scored = 0;
    auto operator<=>(const Window&) const = default;
};

/// Appends windows of at most `max_inputs` inputs. Together the windows predict each token of the record
/// once, except the first token. The rule is the rolling window of lm-evaluation-harness with the first token
/// as prefix: the scored parts are disjoint, and the last window begins early enough to hold as much context
/// as fits. REQUIRES: num_tokens >= 2 and max_inputs >= 1.
void append_windows(int64_t record, int64_t num_tokens, int64_t max_inputs, std::vector<Window>& windows);

struct WindowBatch {
    std::vector<Window> windows;
    /// Only in a packed batch: how many inputs each window shares with the one before it. The windows' other
    /// inputs lie behind each other, without padding. Empty: each window is padded to the length of the first
    /// one.
    std::vector<int64_t> num_shared = {};

    bool is_packed() const { return !num_shared.empty(); }
    /// Length of a padded window.
    int64_t seq_len() const { return windows.front().num_inputs; }
    int64_t num_tokens() const;
};

/// Limits of a batch, which has one window at least.
struct BatchLimits {
    int64_t num_tokens = 2048;  // padding included
    int64_t num_windows = 0;    // 0: 65535
};

/// The maximum number of inputs in a window; 0 if there are no windows.
int64_t longest(std::span<const Window> windows);

/// Sorts the windows by length, longest first, and fills padded batches in this order.
std::vector<WindowBatch> in_batches(std::vector<Window> windows, const BatchLimits& limits);

/// Sorts the windows by their inputs, so that windows with the same beginning follow each other, and fills
/// packed batches in this order. A window shares no input whose prediction it scores.
std::vector<WindowBatch> in_packed_batches(std::vector<Window> windows, std::span<const Tokens> records,
                                           const BatchLimits& limits);

// For a model on a mesh, which is built for batches of one shape, windows are packed into sequences of one
// length. They follow each other as documents: attention stays within a window, whose first token is at
// position 0.

/// The windows of one sequence, in the order of their places in it.
using Sequence = std::vector<Window>;

/// Takes the windows longest first, and puts each into the fullest sequence in which it fits. REQUIRES: no
/// window has more than `seq_len` inputs.
std::vector<Sequence> in_sequences(std::vector<Window> windows, int64_t seq_len);

}  // namespace argosy::eval
