#include "eval/perplexity.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "ops/ops_context.h"

namespace argosy::eval {
namespace {

/// Returns how many batches, counted from the first one, pass each unit in one round.
size_t round_size(std::span<const WindowBatch> batches, int64_t max_tokens) {
    size_t count = 1;
    int64_t num_tokens = batches[0].num_tokens();
    while (count < batches.size() && num_tokens + batches[count].num_tokens() <= max_tokens) {
        num_tokens += batches[count++].num_tokens();
    }
    return count;
}

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
        score.log_likelihood -= losses.narrow(0, row, window.num_inputs).sum().item<double>();
        score.num_greedy += greedy.narrow(0, row, window.num_inputs).sum().item<int64_t>();
        score.num_predicted += window.num_scored;
        row += batch.seq_len();
    }
}

class Scorer {
  public:
    Scorer(const LayerwiseModel& model, std::span<const Tokens> records, const PerplexityOptions& options)
        : model_(model), records_(records), options_(options), scores_(records.size()) {}

    std::vector<RecordScore> run() {
        const std::vector<WindowBatch> batches = in_batches(windows(), options_.batch_tokens);
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
    std::vector<Window> windows() const {
        const int64_t longest = longest_window(records_, options_.max_length);
        std::vector<Window> all;
        for (size_t i = 0; i < records_.size(); ++i) {
            append_windows(static_cast<int64_t>(i), std::ssize(records_[i]), longest, all);
        }
        return all;
    }

    void run_round(std::span<const WindowBatch> round) {
        std::vector<model::Batch> batches;
        for (const WindowBatch& batch : round) {
            batches.push_back(make_batch(batch, records_, model_.options().device()));
        }
        Streams streams = model_.embed(batches);
        count_unit(round);
        for (int64_t layer = 0; layer < model_.spec().num_layers; ++layer) {
            model_.run_block(layer, batches, streams);
            count_unit(round);
        }
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
    const PerplexityOptions& options_;
    std::vector<RecordScore> scores_;
    int64_t work_ = 0, work_done_ = 0;  // tokens times units
};

}  // namespace

int64_t longest_window(std::span<const Tokens> records, int64_t max_length) {
    int64_t longest = 0;
    for (const Tokens& record : records) longest = std::max(longest, std::ssize(record) - 1);
    return max_length > 0 ? std::min(longest, max_length) : longest;
}

std::vector<RecordScore> score_records(const LayerwiseModel& model, std::span<const Tokens> records,
                                       const PerplexityOptions& options) {
    const ops::OpsContext context;
    return Scorer(model, records, options).run();
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

double token_perplexity(const RecordScore& score) {
    return std::exp(-score.log_likelihood / static_cast<double>(score.num_predicted));
}

}  // namespace argosy::eval
