#include "eval/score.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "eval/microbatches.h"
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

class LayerwiseScorer {
  public:
    LayerwiseScorer(const interop::LayerwiseModel& model, std::span<const Tokens> records,
                    const ScoreOptions& options)
        : model_(model), records_(records), options_(options), sums_(records.size()) {}

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
        return scores_of(sums_.totals(), windows);
    }

  private:
    void run_round(std::span<const WindowBatch> round) {
        std::vector<Microbatch> microbatches;
        std::vector<model::Batch> batches;
        for (const WindowBatch& batch : round) {
            microbatches.push_back(make_microbatch(batch, records_, model_.options().device()));
            batches.push_back(microbatches.back().batch);
        }
        interop::Streams streams;
        for (int64_t unit = 0; unit + 1 < model_.num_units(); ++unit) {
            model_.run_unit(unit, batches, streams);
            count_unit(round);
        }
        const std::vector<ops::SoftmaxSums> sums = model_.softmax_sums(batches, streams);
        for (size_t i = 0; i < round.size(); ++i) sums_.add(microbatches[i], sums[i]);
        count_unit(round);
    }

    void count_unit(std::span<const WindowBatch> round) {
        for (const WindowBatch& batch : round) work_done_ += batch.num_tokens();
        if (options_.progress) {
            options_.progress(static_cast<double>(work_done_) / static_cast<double>(work_));
        }
    }

    const interop::LayerwiseModel& model_;
    std::span<const Tokens> records_;
    const ScoreOptions& options_;
    ScoreSums sums_;
    int64_t work_ = 0, work_done_ = 0;  // tokens times units
};

}  // namespace

std::vector<RecordScore> score_windows(const interop::LayerwiseModel& model, std::span<const Tokens> records,
                                       const std::vector<Window>& windows, const ScoreOptions& options) {
    const ops::OpsContext context;
    return LayerwiseScorer(model, records, options).run(windows);
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
