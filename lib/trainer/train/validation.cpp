#include "train/validation.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "comm/values.h"

namespace argosy::train {
namespace {

TrainerOptions with_microbatches(TrainerOptions options, int64_t num_microbatches) {
    options.num_microbatches = num_microbatches;
    return options;
}

}  // namespace

Validation::Validation(data::Loader loader, const TrainerOptions& options, const BatchSizes& sizes,
                       int64_t max_samples, Trainer& trainer, comm::Mesh& mesh)
    : loader_(std::move(loader)),
      mesh_(mesh),
      sizes_(sizes),
      num_samples_(max_samples == kWholeSet ? loader_.num_samples()
                                            : std::min(loader_.num_samples(), max_samples)),
      num_batches_((num_samples_ + sizes.global_batch - 1) / sizes.global_batch),
      executor_(trainer.model(), mesh,
                forward_program(with_microbatches(options, sizes.num_microbatches), mesh), {}) {}

std::optional<ValidationResult> Validation::run(StopAgreement& stop) {
    at::Tensor sum = at::zeros({}, at::TensorOptions(mesh_.device()).dtype(at::kDouble));
    const std::optional<int64_t> num_tokens = add_losses(stop, sum);
    if (!num_tokens) return {};
    if (*num_tokens == 0) {
        if (mesh_.world().rank() == 0) {
            spdlog::warn("no token of the {} validation samples counts as a target, so there is no result",
                         num_samples_);
        }
        return {};
    }
    // The ranks of a tensor group computed the same losses, so only one of them adds them to the sum.
    if (mesh_.coordinate(layout::Axis::Tensor) != 0) sum.zero_();
    sum = comm::reduce_on_host(mesh_.world(), sum, comm::Reduction::Sum);
    return ValidationResult{sum.item<double>() / static_cast<double>(*num_tokens), *num_tokens};
}

/// Adds the losses of all counted tokens to `sum`, and returns the number of these tokens; none after a
/// signal.
std::optional<int64_t> Validation::add_losses(StopAgreement& stop, at::Tensor& sum) {
    int64_t num_tokens = 0;
    DataFeed feed(loader_, mesh_, sizes_, /*first_sample=*/0, num_batches_, num_samples_);
    for (int64_t i = 0; i < num_batches_; ++i) {
        stop.begin();  // the exchange goes on while the batch is computed
        const StepBatch batch = feed.next();
        sum.add_(executor_.run(batch.microbatches, /*loss_weight=*/1, /*update=*/0));
        feed.read_meanwhile();
        num_tokens += batch.job_counted_tokens;
        if (stop.finish() == StopReason::Signal && i + 1 < num_batches_) {
            if (mesh_.world().rank() == 0) spdlog::warn("a signal ends the validation, without a result");
            return {};
        }
    }
    return num_tokens;
}

}  // namespace argosy::train
