#include "eval/score.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <tuple>

#include "eval/kept_attention.h"
#include "ops/ops_context.h"

namespace argosy::eval {
namespace {

/// Removes the rows that predict nothing that counts, so that the head computes no logits for them.
void keep_scored_rows(model::Batch& batch, at::Tensor& stream) {
    const at::Tensor rows = batch.targets.ge(0).nonzero().squeeze(1);
    batch.targets = batch.targets.index_select(0, rows);
    stream = stream.index_select(0, rows);
}

/// Returns how many batches, counted from the first one, pass each unit in one round.
size_t round_size(std::span<const WindowBatch> batches, int64_t max_tokens) {
    size_t count = 1;
    int64_t num_tokens = batches[0].num_tokens();
    while (count < batches.size() && num_tokens + batches[count].num_tokens() <= max_tokens) {
        num_tokens += batches[count++].num_tokens();
    }
    return count;
}

/// `sums` and `targets` have the rows that the windows score, one window after another.
void add_scores(const WindowBatch& batch, const ops::SoftmaxSums& sums, const at::Tensor& targets,
                std::vector<RecordScore>& scores) {
    // One copy for both results: each copy from a GPU makes the host wait.
    const at::Tensor loss = ops::cross_entropy(sums, targets);
    const at::Tensor found =
        at::stack({loss, ops::target_is_largest(sums, targets).to(loss.scalar_type())}).cpu();
    const at::Tensor losses = found[0].to(at::kDouble), greedy = found[1].to(at::kLong);
    int64_t row = 0;
    for (const Window& window : batch.windows) {
        RecordScore& score = scores[window.record];
        score.log_likelihood -= losses.narrow(0, row, window.num_scored).sum().item<double>();
        score.num_greedy += greedy.narrow(0, row, window.num_scored).sum().item<int64_t>();
        score.num_predicted += window.num_scored;
        row += window.num_scored;
    }
}

class Scorer {
  public:
    Scorer(const LayerwiseModel& model, std::span<const Tokens> records, const ScoreOptions& options)
        : model_(model), records_(records), options_(options), scores_(records.size()) {}

    std::vector<RecordScore> run(const std::vector<Window>& windows) {
        const std::vector<WindowBatch> batches = model_.options().device().is_cpu()
                                                     ? in_packed_batches(windows, records_, options_.batch)
                                                     : in_batches(windows, options_.batch);
        for (const WindowBatch& batch : batches) work_ += batch.num_tokens() * model_.num_units();
        const auto token_bytes =
            static_cast<int64_t>(model_.spec().dim * model_.options().dtype().itemsize());
        std::span<const WindowBatch> left = batches;
        while (!left.empty()) {
            const size_t count = round_size(left, options_.stream_bytes / token_bytes);
            run_round(left.first(count));
            left = left.subspan(count);
        }
        return std::move(scores_);
    }

  private:
    void run_round(std::span<const WindowBatch> round) {
        std::vector<model::Batch> batches;
        std::vector<std::unique_ptr<PackedAttention>> attention;
        for (const WindowBatch& batch : round) {
            batches.push_back(make_batch(batch, records_, model_.options().device()));
            if (!batch.is_packed()) continue;
            attention.push_back(std::make_unique<PackedAttention>(batch));
            batches.back().attention = attention.back().get();
        }
        Streams streams = model_.embed(batches);
        count_unit(round);
        for (int64_t layer = 0; layer < model_.spec().num_layers; ++layer) {
            model_.run_block(layer, batches, streams);
            count_unit(round);
        }
        for (size_t i = 0; i < round.size(); ++i) keep_scored_rows(batches[i], streams[i]);
        const std::vector<ops::SoftmaxSums> sums = model_.softmax_sums(batches, streams);
        for (size_t i = 0; i < round.size(); ++i) add_scores(round[i], sums[i], batches[i].targets, scores_);
        count_unit(round);
    }

    void count_unit(std::span<const WindowBatch> round) {
        for (const WindowBatch& batch : round) work_done_ += batch.num_tokens();
        if (options_.progress) {
            options_.progress(static_cast<double>(work_done_) / static_cast<double>(work_));
        }
    }

    const LayerwiseModel& model_;
    std::span<const Tokens> records_;
    const ScoreOptions& options_;
    std::vector<RecordScore> scores_;
    int64_t work_ = 0, work_done_ = 0;  // tokens times units
};

}  // namespace

std::vector<RecordScore> score_windows(const LayerwiseModel& model, std::span<const Tokens> records,
                                       const std::vector<Window>& windows, const ScoreOptions& options) {
    const ops::OpsContext context;
    return Scorer(model, records, options).run(windows);
}

std::vector<RecordScore> score_distinct(const ScoreWindows& score, std::span<const Tokens> records,
                                        const std::vector<Window>& windows) {
    std::vector<std::vector<Window>> windows_of(records.size());
    for (const Window& window : windows) {
        windows_of[window.record].push_back(window);
        windows_of[window.record].back().record = 0;
    }
    const auto is_before = [&](size_t one, size_t other) {
        return std::tie(records[one], windows_of[one]) < std::tie(records[other], windows_of[other]);
    };
    std::set<size_t, decltype(is_before)> distinct(is_before);
    std::vector<size_t> first(records.size());  // the first record that is equal
    for (size_t i = 0; i < records.size(); ++i) first[i] = *distinct.insert(i).first;
    std::vector<Window> distinct_windows;
    std::ranges::copy_if(windows, std::back_inserter(distinct_windows), [&](const Window& window) {
        return first[window.record] == static_cast<size_t>(window.record);
    });
    std::vector<RecordScore> scores = score(records, distinct_windows);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = scores[first[i]];
    return scores;
}

RecordScore total(std::span<const RecordScore> scores) {
    RecordScore sum;
    for (const RecordScore& score : scores) {
        sum.log_likelihood += score.log_likelihood;
        sum.num_predicted += score.num_predicted;
        sum.num_greedy += score.num_greedy;
    }
    return sum;
}

}  // namespace argosy::eval
