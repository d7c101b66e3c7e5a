#include "eval/windows.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/output.h"
#include "data/records.h"

namespace argosy::eval {
namespace {

constexpr int64_t kPadding = 0;  // any token: results at padded positions are not used
constexpr int64_t kNotCounted = -1;
// CUDA's maximum for the y dimension of a grid. FlashAttention in LibTorch uses this dimension for the
// windows of a batch.
constexpr size_t kMaxWindows = 65535;

std::string task_name(const std::filesystem::path& path) {
    return is_standard_stream(path) ? "stdin" : path.stem().string();
}

TokenTask read(const std::filesystem::path& path, int64_t vocab_size) {
    TokenTask task{.name = task_name(path), .path = path};
    data::RecordReader reader(path, vocab_size);
    data::Record record;
    while (reader.next(record)) {
        if (record.kind == data::RecordKind::Text) {
            throw UserError(
                "{}: the record is {}, which needs a tokenizer, and eval has none yet; use {} records",
                reader.place(), data::name(record.kind), data::name(data::RecordKind::Tokens));
        }
        if (record.tokens.size() < 2) {
            if (task.num_short++ == 0) task.first_short = reader.place();
            continue;
        }
        task.records.push_back(std::move(record.tokens));
        task.places.push_back(reader.place());
    }
    if (task.records.empty()) {
        throw UserError(
            "{} holds no records of two tokens or more ({} are shorter); the first token is context",
            path.string(), task.num_short);
    }
    return task;
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

std::vector<WindowBatch> in_batches(std::vector<Window> windows, int64_t batch_tokens) {
    std::ranges::stable_sort(windows, std::greater(), &Window::num_inputs);
    std::vector<WindowBatch> batches;
    const auto is_full = [&](const WindowBatch& batch) {
        return batch.num_tokens() + batch.seq_len() > batch_tokens || batch.windows.size() == kMaxWindows;
    };
    for (const Window& window : windows) {
        if (batches.empty() || is_full(batches.back())) batches.emplace_back();
        batches.back().windows.push_back(window);
    }
    return batches;
}

model::Batch make_batch(const WindowBatch& batch, std::span<const Tokens> records, c10::Device device) {
    const at::Tensor tokens = at::full({batch.num_tokens()}, kPadding, at::kLong);
    const at::Tensor targets = at::full({batch.num_tokens()}, kNotCounted, at::kLong);
    auto *token = tokens.mutable_data_ptr<int64_t>(), *target = targets.mutable_data_ptr<int64_t>();
    for (const Window& window : batch.windows) {
        const auto inputs = records[window.record].begin() + window.begin;
        std::copy_n(inputs, window.num_inputs, token);
        const int64_t context = window.num_inputs - window.num_scored;
        std::copy_n(inputs + context + 1, window.num_scored, target + context);
        token += batch.seq_len();
        target += batch.seq_len();
    }
    return {tokens.to(device), targets.to(device), static_cast<int64_t>(batch.windows.size()),
            batch.seq_len()};
}

std::vector<TokenTask> read_token_tasks(const std::vector<std::filesystem::path>& paths, int64_t vocab_size) {
    std::map<std::string, std::filesystem::path> named;
    for (const auto& path : paths) {
        const auto [at, added] = named.emplace(task_name(path), path);
        if (added) continue;
        throw UserError("the tasks {} and {} have the same name '{}'; rename one", at->second.string(),
                        path.string(), at->first);
    }
    std::vector<TokenTask> tasks;
    for (const auto& path : paths) tasks.push_back(read(path, vocab_size));
    return tasks;
}

}  // namespace argosy::eval
