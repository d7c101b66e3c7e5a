#include "eval/windows.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"

namespace argosy::eval {
namespace {

// CUDA's maximum for the y dimension of a grid. FlashAttention in LibTorch uses this dimension for the
// windows of a batch.
constexpr size_t kMaxWindows = 65535;

bool has_all_windows(const WindowBatch& batch, const BatchLimits& limits) {
    const size_t limit = limits.num_windows > 0 ? limits.num_windows : kMaxWindows;
    return batch.windows.size() >= std::min(limit, kMaxWindows);
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

}  // namespace argosy::eval
