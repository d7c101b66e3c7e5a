// Windows as the model reads them, and what it finds about them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "eval/score.h"
#include "eval/windows.h"
#include "model/layer.h"
#include "model/tensor_axis.h"
#include "ops/cross_entropy.h"

namespace argosy::eval {

/// The head computes logits only for predictions that count.
struct Microbatch {
    model::Batch batch;
    at::Tensor records;  // of each token that counts, on the host: the number of its record
    std::unique_ptr<model::ContextAxis> attention = nullptr;  // batch.attention
};

/// Attention is causal, so padding after a window does not change the results of its tokens. A packed batch
/// is one sequence, with each token's position in its window.
Microbatch make_microbatch(const WindowBatch& batch, std::span<const Tokens> records, c10::Device device);

/// The windows of each sequence are documents. Null stands for an empty sequence. `own_part` takes this
/// rank's tokens of [rows, sequences, seq_len]; empty: all.
Microbatch make_microbatch(std::span<const Sequence* const> sequences, std::span<const Tokens> records,
                           int64_t seq_len, c10::Device device,
                           const std::function<at::Tensor(const at::Tensor&)>& own_part = {});

/// The sums of the scores of each record.
class ScoreSums {
  public:
    explicit ScoreSums(size_t num_records);

    /// Adds the head's results for the tokens of a microbatch that count, in their order.
    void add(const Microbatch& microbatch, const ops::SoftmaxSums& sums);
    /// Returns [records, 2] in fp64 on the host: log-likelihood, number of likeliest tokens.
    at::Tensor totals();

  private:
    void fetch();

    struct Found {
        /// [2, tokens], on the device: losses, and whether the target is the likeliest token.
        at::Tensor values;
        at::Tensor records;  // [tokens], on the host
    };
    std::vector<Found> found_;  // not yet in totals_
    int64_t num_found_ = 0;     // tokens in found_
    at::Tensor totals_;
};

/// The scores of [records, 2] of ScoreSums.
std::vector<RecordScore> scores_of(const at::Tensor& totals, std::span<const Window> windows);

}  // namespace argosy::eval
