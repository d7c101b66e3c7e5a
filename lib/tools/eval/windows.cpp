#include "eval/windows.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "base/error.h"

namespace argosy::eval {
namespace {

constexpr int64_t kPadding = 0;  // any token: results at padded positions are not used
constexpr int64_t kNotCounted = -1;
// CUDA's maximum for the y dimension of a grid. FlashAttention in LibTorch uses this dimension for the
// windows of a batch.
constexpr size_t kMaxWindows = 65535;

bool has_all_windows(const WindowBatch& batch, const BatchLimits& limits) {
    const size_t limit = limits.num_windows > 0 ? limits.num_windows : kMaxWindows;
    return batch.windows.size() >= std::min(limit, kMaxWindows);
}

/// Cuts a packed batch so that its parts have as equal numbers of tokens as its windows allow. Returns the
/// second part. REQUIRES: two windows.
WindowBatch split_in_two(WindowBatch& batch) {
    const int64_t all = batch.num_tokens();
    size_t count = 0;
    for (int64_t first = 0; count + 1 < batch.windows.size(); ++count) {
        // The second part computes what its first window shares with the last one of the first part.
        if (count > 0 && first >= all - first + batch.num_shared[count]) break;
        first += batch.windows[count].num_inputs - batch.num_shared[count];
    }
    const auto offset = static_cast<int64_t>(count);
    WindowBatch second{{batch.windows.begin() + offset, batch.windows.end()},
                       {batch.num_shared.begin() + offset, batch.num_shared.end()}};
    second.num_shared[0] = 0;
    batch.windows.resize(count);
    batch.num_shared.resize(count);
    return second;
}

}  // namespace

void append_windows(int64_t record, int64_t num_tokens, int64_t max_inputs, std::vector<Window>& windows) {
    ARGOSY_CHECK(num_tokens >= 2 && max_inputs >= 1, "a record of {} tokens in windows of {}", num_tokens,
                 max_inputs);
    const int64_t num_predicted = num_tokens - 1;
    for (int64_t done = 0; done < num_predicted;) {
        const int64_t num_scored = std::min(max_inputs, num_predicted - done);
        const int64_t end = done + num_scored;
        const int64_t begin = std::max<int64_t>(0, end - max_inputs);
        windows.push_back({record, begin, end - begin, num_scored});
        done = end;
    }
}

int64_t longest(std::span<const Window> windows) {
    int64_t inputs = 0;
    for (const Window& window : windows) inputs = std::max(inputs, window.num_inputs);
    return inputs;
}

int64_t WindowBatch::num_tokens() const {
    if (!is_packed()) return static_cast<int64_t>(windows.size()) * seq_len();
    int64_t count = 0;
    for (size_t i = 0; i < windows.size(); ++i) count += windows[i].num_inputs - num_shared[i];
    return count;
}

std::vector<WindowBatch> in_batches(std::vector<Window> windows, const BatchLimits& limits) {
    std::ranges::stable_sort(windows, std::greater(), &Window::num_inputs);
    std::vector<WindowBatch> batches;
    const auto is_full = [&](const WindowBatch& batch) {
        return batch.num_tokens() + batch.seq_len() > limits.num_tokens || has_all_windows(batch, limits);
    };
    for (const Window& window : windows) {
        if (batches.empty() || is_full(batches.back())) batches.emplace_back();
        batches.back().windows.push_back(window);
    }
    return batches;
}

std::vector<WindowBatch> in_packed_batches(std::vector<Window> windows, std::span<const Tokens> records,
                                           const BatchLimits& limits) {
    const auto inputs = [&](const Window& window) {
        return std::span(records[window.record]).subspan(window.begin, window.num_inputs);
    };
    std::ranges::stable_sort(windows, [&](const Window& one, const Window& other) {
        return std::ranges::lexicographical_compare(inputs(one), inputs(other));
    });
    std::vector<WindowBatch> batches;
    int64_t num_tokens = 0;  // of the last batch
    for (const Window& window : windows) {
        int64_t shared = 0;
        if (!batches.empty()) {
            const auto own = inputs(window).first(window.num_inputs - window.num_scored);
            shared = std::ranges::mismatch(own, inputs(batches.back().windows.back())).in1 - own.begin();
        }
        const bool fits = !batches.empty() && num_tokens + window.num_inputs - shared <= limits.num_tokens &&
                          !has_all_windows(batches.back(), limits);
        if (!fits) {
            batches.emplace_back();
            shared = num_tokens = 0;
        }
        batches.back().windows.push_back(window);
        batches.back().num_shared.push_back(shared);
        num_tokens += window.num_inputs - shared;
    }
    return batches;
}

void split_packed_batches(std::vector<WindowBatch>& batches, int64_t unit) {
    const auto size = [](const WindowBatch& batch) {
        return batch.windows.size() < 2 ? 0 : batch.num_tokens();
    };
    while (std::ssize(batches) % unit != 0) {
        WindowBatch& largest = *std::ranges::max_element(batches, {}, size);
        if (size(largest) == 0) break;
        WindowBatch second = split_in_two(largest);
        batches.push_back(std::move(second));
    }
    std::ranges::stable_sort(batches, std::greater(), &WindowBatch::num_tokens);
}

void write_window(const Window& window, const Tokens& record, int64_t first, int64_t* tokens,
                  int64_t* targets) {
    const int64_t num_rows = window.num_inputs - first, context = num_rows - window.num_scored;
    const auto inputs = record.begin() + window.begin + first;
    std::copy_n(inputs, num_rows, tokens);
    std::copy_n(inputs + context + 1, window.num_scored, targets + context);
}

model::Batch make_batch(const WindowBatch& batch, std::span<const Tokens> records, c10::Device device,
                        int64_t min_tokens) {
    const int64_t num_tokens = std::max(batch.num_tokens(), batch.is_packed() ? min_tokens : 0);
    const at::Tensor tokens = at::full({num_tokens}, kPadding, at::kLong);
    const at::Tensor targets = at::full({num_tokens}, kNotCounted, at::kLong);
    const at::Tensor positions = at::full({batch.is_packed() ? num_tokens : 0}, 0, at::kLong);
    auto *token = tokens.mutable_data_ptr<int64_t>(), *target = targets.mutable_data_ptr<int64_t>(),
         *position = positions.mutable_data_ptr<int64_t>();
    for (size_t i = 0; i < batch.windows.size(); ++i) {
        const Window& window = batch.windows[i];
        const int64_t shared = batch.is_packed() ? batch.num_shared[i] : 0;
        const int64_t num_rows = window.num_inputs - shared;
        write_window(window, records[window.record], shared, token, target);
        if (batch.is_packed()) {
            std::iota(position, position + num_rows, shared);
            position += num_rows;
        }
        token += batch.is_packed() ? num_rows : batch.seq_len();
        target += batch.is_packed() ? num_rows : batch.seq_len();
    }
    model::Batch made{.tokens = tokens.to(device), .targets = targets.to(device)};
    made.num_sequences = batch.is_packed() ? 1 : std::ssize(batch.windows);
    made.seq_len = num_tokens / made.num_sequences;
    if (batch.is_packed()) made.positions = positions.to(device);
    return made;
}

std::vector<Sequence> in_sequences(std::vector<Window> windows, int64_t seq_len) {
    std::ranges::stable_sort(windows, std::greater(), &Window::num_inputs);
    std::vector<Sequence> sequences;
    std::multimap<int64_t, size_t> by_room;  // free tokens -> index of the sequence
    for (const Window& window : windows) {
        ARGOSY_CHECK(window.num_inputs <= seq_len, "a window of {} tokens in a sequence of {}",
                     window.num_inputs, seq_len);
        auto fullest = by_room.lower_bound(window.num_inputs);
        if (fullest == by_room.end()) {
            fullest = by_room.emplace(seq_len, sequences.size());
            sequences.emplace_back();
        }
        const auto [room, index] = *fullest;
        by_room.erase(fullest);
        by_room.emplace(room - window.num_inputs, index);
        sequences[index].push_back(window);
    }
    return sequences;
}

at::Tensor sequence_rows(std::span<const Sequence* const> sequences, std::span<const Tokens> records,
                         int64_t seq_len) {
    const at::Tensor rows = at::zeros({kNumSequenceRows, std::ssize(sequences), seq_len}, at::kLong);
    rows[kTargets].fill_(-1);
    auto* const begin = rows.mutable_data_ptr<int64_t>();
    for (size_t i = 0; i < sequences.size(); ++i) {
        int64_t place = static_cast<int64_t>(i) * seq_len;
        const auto at = [&](SequenceRow row) { return begin + row * rows.stride(0) + place; };
        if (sequences[i] == nullptr) continue;
        for (const Window& window : *sequences[i]) {
            write_window(window, records[window.record], /*first=*/0, at(kTokens), at(kTargets));
            std::iota(at(kPositions), at(kPositions) + window.num_inputs, 0);
            std::fill_n(at(kRecords), window.num_inputs, window.record);
            place += window.num_inputs;
        }
    }
    return rows;
}

}  // namespace argosy::eval
