#include "train/qk_clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "base/error.h"
#include "ops/numerics.h"
#include "ops/stochastic_rounding.h"
#include "ops/work.h"

namespace argosy::train {

QkClip::QkClip(double threshold, uint64_t seed, parallel::ParallelModel& model)
    : threshold_(threshold), seed_(seed), model_(model) {
    ARGOSY_CHECK(model.largest_scores().defined() && model.spec().qk_norm == model::QkNorm::None,
                 "QK-clip of a model whose scores are not watched, or do not follow the weights");
}

void QkClip::apply(const at::Tensor& largest, int64_t update) {
    // 1. a factor for each key head of each layer, which the query heads that share it have too
    const at::Tensor shared = largest.view({largest.size(0), model_.spec().num_kv_heads, -1}).amax(2);
    const at::Tensor factors =
        at::where(shared.gt(threshold_), (threshold_ / shared).sqrt(), at::ones_like(shared));
    // 2. the rows of the heads, which are in the order of the key heads in wq too
    for (size_t i = 0; i < model_.parameters().size(); ++i) {
        parallel::ShardedParameter& parameter = *model_.parameters()[i];
        if (!parameter.spec().makes_scores) continue;
        const at::Tensor of_layer = factors[model_.parameter_units()[i] - 1];  // unit 0 is the embedding
        if (of_layer.lt(1).any().item<bool>()) scale(parameter, of_layer, update);
    }
}

/// Multiplies this rank's rows by the factors of their heads.
void QkClip::scale(parallel::ShardedParameter& parameter, const at::Tensor& factors, int64_t update) const {
    const layout::Slab& slab = parameter.slab();
    const at::Tensor own = parameter.own_rows(parameter.master());
    std::vector<int64_t> column(own.dim(), 1);
    column[0] = -1;
    const int64_t rows_of_head = parameter.spec().shape[0] / factors.size(0);
    const at::Tensor of_rows =
        factors.repeat_interleave(rows_of_head).narrow(0, slab.offset[0], slab.size[0]).view(column);
    const at::Tensor scaled =
        ops::widened(own) * of_rows.to(own.device(), ops::accumulation_type(own.scalar_type()));
    const ops::RoundingKey key = ops::rounding_key(seed_, parameter.spec().name, ops::Rounded::ClippedWeight);
    ops::store(own, scaled, layout::rows_of(parameter.spec().shape, slab), static_cast<uint64_t>(update),
               key);
    parameter.refresh_compute();
    ops::note_pass({own, scaled, scaled, own});
}

}  // namespace argosy::train
