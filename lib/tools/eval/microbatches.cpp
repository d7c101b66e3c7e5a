#include "eval/microbatches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "eval/resident_model.h"
#include "gpu/device.h"
#include "model/head.h"
#include "ops/documents.h"

namespace argosy::eval {
namespace {

constexpr int64_t kNotCounted = -1;

/// Results of this many tokens stay on a GPU before the host fetches them, because a copy waits for the GPU.
constexpr int64_t kMaxFound = int64_t{1} << 22;

/// Writes the inputs of a window, from input number `first` on, and the targets of those whose predictions
/// count. REQUIRES: the prediction of no input before `first` counts.
void write_window(const Window& window, const Tokens& record, int64_t first, int64_t* tokens,
                  int64_t* targets) {
    const int64_t num_rows = window.num_inputs - first, context = num_rows - window.num_scored;
    const auto inputs = record.begin() + window.begin + first;
    std::copy_n(inputs, num_rows, tokens);
    std::copy_n(inputs + context + 1, window.num_scored, targets + context);
}

/// The rows whose targets count; the head needs one at least.
at::Tensor rows_that_count(const at::Tensor& targets) {
    const at::Tensor counted = targets.ge(0).nonzero().squeeze(1);
    return counted.numel() > 0 ? counted : at::zeros({1}, at::kLong);
}

/// Attention of a packed batch, in which the beginning of a window is computed only once if it is also that
/// of the window before it. A call for each window would be slow on a GPU.
class PackedAttention : public model::ContextAxis {
  public:
    explicit PackedAttention(const WindowBatch& batch) : longest_(longest(batch.windows)) {
        for (size_t i = 0; i < batch.windows.size(); ++i) {
            segments_.push_back({0, batch.num_shared[i], batch.windows[i].num_inputs - batch.num_shared[i]});
        }
    }

    /// The keys and values that are kept are those of the current window, from its first input on. They are
    /// still those of the window before, so the shared ones are there already.
    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape, const at::Tensor&) const override {
        const at::Tensor keys = at::empty({1, longest_, k.size(1)}, k.options()),
                         values = at::empty_like(keys);
        return attend(segments_, q, k, v, shape, keys, values);
    }

  private:
    int64_t longest_;
    std::vector<Segment> segments_;
};

/// Rows of tokens on the host.
enum TokenRow { kTokens, kTargets, kPositions, kRecords, kNumRows };

/// [kNumRows, num_sequences, seq_len] in int64: of each token its id, its target (negative: not counted), its
/// position in its window, and the number of its window's record. Padding is at position 0, so that it
/// attends to itself alone.
at::Tensor sequence_rows(std::span<const Sequence* const> sequences, std::span<const Tokens> records,
                         int64_t seq_len) {
    const at::Tensor rows = at::zeros({kNumRows, std::ssize(sequences), seq_len}, at::kLong);
    rows[kTargets].fill_(kNotCounted);
    auto* const begin = rows.mutable_data_ptr<int64_t>();
    for (size_t i = 0; i < sequences.size(); ++i) {
        int64_t place = static_cast<int64_t>(i) * seq_len;
        const auto at = [&](TokenRow row) { return begin + row * rows.stride(0) + place; };
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

/// Whether each sequence is one window from its beginning on, so that causal attention needs no positions.
bool are_whole_windows(std::span<const Sequence* const> sequences) {
    return std::ranges::all_of(sequences,
                               [](const auto* each) { return each == nullptr || each->size() == 1; });
}

/// The windows of a batch as documents, for attention on a GPU.
at::Tensor document_offsets(const at::Tensor& positions, int64_t seq_len, c10::Device device) {
    const at::Tensor ends = at::empty_like(positions);
    const auto size = static_cast<size_t>(positions.numel());
    const int64_t num_documents = ops::write_document_ends({positions.const_data_ptr<int64_t>(), size},
                                                           seq_len, {ends.mutable_data_ptr<int64_t>(), size});
    return ops::document_offsets(ends.to(device), ops::document_capacity(num_documents));
}

Microbatch packed_microbatch(const WindowBatch& packed, std::span<const Tokens> records, c10::Device device) {
    const int64_t num_tokens = packed.num_tokens();
    const at::Tensor tokens = at::zeros({num_tokens}, at::kLong);
    const at::Tensor targets = at::full({num_tokens}, kNotCounted, at::kLong);
    const at::Tensor positions = at::zeros({num_tokens}, at::kLong);
    auto *token = tokens.mutable_data_ptr<int64_t>(), *target = targets.mutable_data_ptr<int64_t>(),
         *position = positions.mutable_data_ptr<int64_t>();
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < packed.windows.size(); ++i) {
        const Window& window = packed.windows[i];
        const int64_t shared = packed.num_shared[i], num_rows = window.num_inputs - shared;
        write_window(window, records[window.record], shared, token, target);
        std::iota(position, position + num_rows, shared);
        numbers.insert(numbers.end(), window.num_scored, window.record);
        token += num_rows;
        target += num_rows;
        position += num_rows;
    }
    Microbatch made;
    made.batch = {.tokens = tokens.to(device),
                  .targets = targets.to(device),
                  .num_sequences = 1,
                  .seq_len = num_tokens,
                  .positions = positions.to(device),
                  .head_rows = rows_that_count(targets).to(device)};
    made.records = at::tensor(numbers, at::kLong);
    made.attention = std::make_unique<PackedAttention>(packed);
    made.batch.attention = made.attention.get();
    return made;
}

}  // namespace

Microbatch make_microbatch(const WindowBatch& batch, std::span<const Tokens> records, c10::Device device) {
    if (batch.is_packed()) return packed_microbatch(batch, records, device);
    std::vector<Sequence> sequences;
    for (const Window& window : batch.windows) sequences.push_back({window});
    std::vector<const Sequence*> all;
    for (const Sequence& sequence : sequences) all.push_back(&sequence);
    return make_microbatch(all, records, batch.seq_len(), device);
}

Microbatch make_microbatch(std::span<const Sequence* const> sequences, std::span<const Tokens> records,
                           int64_t seq_len, c10::Device device,
                           const std::function<at::Tensor(const at::Tensor&)>& own_part) {
    // 1. the tokens, of which a rank of the context axis keeps its part
    at::Tensor rows = sequence_rows(sequences, records, seq_len);
    if (own_part) rows = own_part(rows);
    const int64_t own_seq_len = rows.size(2);
    rows = rows.view({kNumRows, -1});
    // 2. the tokens that count
    const at::Tensor targets = rows[kTargets], counted = targets.ge(0);
    // 3. the copy on the device
    model::Batch batch{.tokens = rows[kTokens].to(device),
                       .targets = targets.to(device),
                       .num_sequences = std::ssize(sequences),
                       .seq_len = own_seq_len,
                       .head_rows = rows_that_count(targets).to(device)};
    if (own_part || !are_whole_windows(sequences)) batch.positions = rows[kPositions].to(device);
    if (batch.positions.defined() && !own_part && gpu::holds(batch.positions)) {
        batch.document_offsets = document_offsets(rows[kPositions], own_seq_len, device);
    }
    return {batch, rows[kRecords].masked_select(counted)};
}

ScoreSums::ScoreSums(size_t num_records)
    : totals_(at::zeros({static_cast<int64_t>(num_records), 2}, at::kDouble)) {}

void ScoreSums::add(const Microbatch& microbatch, const ops::SoftmaxSums& sums) {
    if (microbatch.records.numel() == 0) return;
    const at::Tensor targets = model::head_targets(microbatch.batch);
    const at::Tensor losses = ops::cross_entropy(sums, targets);
    found_.push_back({at::stack({losses, ops::target_is_largest(sums, targets).to(losses.scalar_type())}),
                      microbatch.records});
    num_found_ += microbatch.records.numel();
    if (num_found_ > kMaxFound) fetch();
}

/// Adds the results of found_ to the sums of their records.
void ScoreSums::fetch() {
    if (found_.empty()) return;
    std::vector<at::Tensor> values, records;
    for (Found& each : std::exchange(found_, {})) {
        values.push_back(std::move(each.values));
        records.push_back(std::move(each.records));
    }
    num_found_ = 0;
    const at::Tensor all = at::cat(values, 1).cpu().to(at::kDouble), numbers = at::cat(records);
    const auto *loss = all.const_data_ptr<double>(), *likeliest = loss + all.size(1);
    const auto* record = numbers.const_data_ptr<int64_t>();
    auto* sums = totals_.mutable_data_ptr<double>();
    for (int64_t i = 0; i < all.size(1); ++i) {
        sums[2 * record[i]] -= loss[i];
        sums[2 * record[i] + 1] += likeliest[i];
    }
}

at::Tensor ScoreSums::totals() {
    fetch();
    return totals_;
}

std::vector<RecordScore> scores_of(const at::Tensor& totals, std::span<const Window> windows) {
    std::vector<RecordScore> scores(totals.size(0));
    const auto* sums = totals.const_data_ptr<double>();
    for (RecordScore& score : scores) {
        score.log_likelihood = *sums++;
        score.num_greedy = static_cast<int64_t>(*sums++);
    }
    for (const Window& window : windows) scores[window.record].num_predicted += window.num_scored;
    return scores;
}

}  // namespace argosy::eval
