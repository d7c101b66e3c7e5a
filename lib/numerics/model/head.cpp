#include "model/head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "model/layer.h"
#include "model/norm.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/numerics.h"
#include "ops/rms_norm.h"
#include "ops/work.h"

namespace argosy::model {

using ops::SumOver;

namespace {

constexpr const char* kTable = "tok_embeddings.weight";

// Minimum rows of a chunk, because each chunk reads the whole matrix and its gradient once.
constexpr int64_t kMinRows = 512;

HeadPlaces places_of_head(const ModelSpec& spec) {
    Unit unit;
    return declare_head(spec, unit);
}

Place place_of_table(const ModelSpec& spec) {
    Unit unit;
    return declare_embedding(spec, unit);
}

/// A tied table is also the head's matrix: its rows start with about unit length, which keeps the initial
/// logits of order one.
Parameter table(const ModelSpec& spec) {
    const double deviation = spec.tied_embeddings ? 1 / std::sqrt(static_cast<double>(spec.dim)) : 1;
    Parameter parameter = projection(kTable, spec.vocab_size, spec.dim, kOutputs, deviation);
    parameter.is_table = true;
    parameter.spec.kind = layout::ParameterKind::Embedding;
    return parameter;
}

}  // namespace

HeadPlaces declare_head(const ModelSpec& spec, Unit& unit) {
    const double deviation = 1 / std::sqrt(static_cast<double>(spec.dim));
    const Place norm = unit.add({norm_weight(spec, "norm.weight", spec.dim)});
    Parameter output = projection("output.weight", spec.vocab_size, spec.dim, kOutputs, deviation);
    output.spec.kind = layout::ParameterKind::Head;
    return {norm, unit.add({spec.tied_embeddings ? table(spec) : output}, "output")};
}

Head::Head(const ModelSpec& spec, const TensorAxis& axis, bool gather_logits)
    : spec_(spec), places_(places_of_head(spec)), axis_(axis), gather_logits_(gather_logits) {}

int64_t Head::rows_per_chunk(int64_t num_rows, int64_t num_columns, const at::Tensor& x) {
    return ops::rows_at_once(num_rows, std::max(kMinRows, ops::max_temporary_elements(x) / num_columns));
}

at::Tensor Head::gather_normed(const Weights& weights, const at::Tensor& x) const {
    return gather_rows(ops::rms_norm(x, norm_of(spec_, weights[places_.norm])).y);
}

at::Tensor Head::logits(const Weights& weights, const at::Tensor& x) const {
    const ops::Stack output = weights.stack(places_.output);
    const auto& [left, right] = output.recipe->forward;
    return ops::linear(axis_.cast(gather_normed(weights, x), left, SumOver::Columns),
                       axis_.cast(output, right, SumOver::Columns));
}

ops::SoftmaxSums Head::sums_of_all_ranks(ops::SoftmaxSums own) const {
    at::Tensor maxima = own.maxima.clone();
    axis_.max(maxima);
    ops::raise_maxima(own, maxima);
    axis_.sum(own.sums, "softmax");
    return own;
}

ops::SoftmaxSums Head::turn_into_gradient(at::Tensor& logits, const at::Tensor& targets,
                                          const at::Tensor& scale) const {
    const layout::Range own = axis_.share(spec_.vocab_size);
    if (own.size == spec_.vocab_size) return ops::turn_into_cross_entropy_gradient(logits, targets, scale);
    const ops::SoftmaxSums sums =
        gather_logits_
            ? ops::softmax_sums(axis_.gather_columns(logits, spec_.vocab_size), targets, /*begin=*/0)
            : sums_of_all_ranks(ops::softmax_sums(logits, targets, own.begin));
    ops::turn_into_cross_entropy_gradient(logits, sums, targets, own.begin, scale);
    return sums;
}

at::Tensor head_targets(const Batch& batch) {
    return batch.head_rows.defined() ? batch.targets.index_select(0, batch.head_rows) : batch.targets;
}

ops::SoftmaxSums Head::softmax_sums(const Weights& weights, const at::Tensor& x, const Batch& batch) const {
    // 1. normalise, gather and choose the rows: normed [head rows, dim]
    at::Tensor normed = gather_normed(weights, x);
    if (batch.head_rows.defined()) normed = normed.index_select(0, batch.head_rows);
    const at::Tensor targets = head_targets(batch);
    const int64_t begin = axis_.share(spec_.vocab_size).begin;
    const int64_t chunk_rows = rows_per_chunk(normed.size(0), axis_.largest_share(spec_.vocab_size), x);
    const ops::Stack output = weights.stack(places_.output);
    const ops::Operand all_rows = axis_.cast(normed, output.recipe->forward.left, SumOver::Columns);
    const ops::Stack matrix = axis_.cast(output, output.recipe->forward.right, SumOver::Columns);
    // 2. for each chunk: logits [count, vocab columns], and their sums over this rank's columns
    std::vector<at::Tensor> maxima, sums;
    for (int64_t row = 0; row < normed.size(0); row += chunk_rows) {
        const int64_t count = std::min(chunk_rows, normed.size(0) - row);
        ops::SoftmaxSums chunk = ops::softmax_sums(ops::linear(all_rows.narrow(0, row, count), matrix),
                                                   targets.narrow(0, row, count), begin);
        maxima.push_back(std::move(chunk.maxima));
        sums.push_back(std::move(chunk.sums));
    }
    // 3. combine the sums of all ranks
    return sums_of_all_ranks({at::cat(maxima), at::cat(sums, /*dim=*/1)});
}

Head::Loss Head::loss_and_input_gradient(const Weights& weights, const at::Tensor& x, const Batch& batch,
                                         const at::Tensor& scale, const TakeWork& take) const {
    // 1. normalise, cast, and start to gather the first piece. Without casts these are the same tensors.
    const auto norm = ops::rms_norm(x, norm_of(spec_, weights[places_.norm]));
    const ops::Stack output = weights.stack(places_.output);
    const ops::Recipe& recipe = *output.recipe;
    const Projection projection = {recipe, axis_.cast(output, recipe.forward.right, SumOver::Columns),
                                   axis_.cast(output, recipe.input_gradient.right, SumOver::Rows)};
    const ops::Operand own_rows =
        axis_.cast_if_shared(norm.y, recipe, TensorAxis::Rows::Own, SumOver::Either);
    const std::vector<layout::Range> pieces = axis_.pieces(norm.y.size(0));
    const auto gather = [&](const layout::Range& piece) {
        return axis_.start_gather(own_rows.narrow(0, piece.begin, piece.size), output.name);
    };
    std::unique_ptr<ComingRows> gathered = gather(pieces[0]);

    // 2. for each piece: normed, dnormed [tokens of the piece, dim]. The next piece is gathered and the piece
    //    before is reduced meanwhile.
    at::Tensor sum = at::zeros({}, x.options().dtype(at::kDouble));
    std::vector<std::unique_ptr<ComingRows>> reduced;
    for (size_t i = 0; i < pieces.size(); ++i) {
        const ops::Operand normed = gathered->take();
        if (i + 1 < pieces.size()) gathered = gather(pieces[i + 1]);
        const auto [loss, dnormed] =
            loss_of_piece(projection, normed, axis_.targets_of(pieces[i], batch.targets), scale, take);
        sum += loss;
        reduced.push_back(axis_.start_reduce(dnormed, pieces[i].size, output.name));
    }

    // 3. wait for the sums over the ranks, and norm: dx [rows, dim]
    std::vector<at::Tensor> own;
    for (const auto& rows : reduced) own.push_back(rows->take().values);
    auto [dx, dnorm] = ops::rms_norm_backward(own.size() == 1 ? own[0] : at::cat(own), x,
                                              norm_of(spec_, weights[places_.norm]), norm.inverse_rms);
    WeightWork norm_work;
    norm_work.add_value(places_.norm, dnorm);
    take(std::move(norm_work));
    return {sum, dx};
}

Head::Loss Head::loss_of_piece(const Projection& projection, const ops::Operand& normed,
                               const at::Tensor& targets, const at::Tensor& scale,
                               const TakeWork& take) const {
    const ops::Recipe& recipe = projection.recipe;
    const ops::Operand cast_normed = ops::cast(normed, recipe.forward.left, SumOver::Columns);
    const int64_t num_rows = normed.values.size(0);
    const at::Tensor dnormed = at::empty(normed.values.sizes(), normed.values.options().dtype(normed.type));
    const int64_t chunk_rows = rows_per_chunk(num_rows, axis_.largest_share(spec_.vocab_size), dnormed);
    at::Tensor sum = at::zeros({}, dnormed.options().dtype(at::kDouble));
    // for each chunk: logits [count, vocab columns], loss, gradient of the logits (in place), the
    // projection's input gradient, and the work for its weights' gradient
    for (int64_t row = 0; row < num_rows; row += chunk_rows) {
        const int64_t count = std::min(chunk_rows, num_rows - row);
        const ops::Operand rows = normed.narrow(0, row, count);
        const at::Tensor own_targets = targets.narrow(0, row, count);
        at::Tensor logits = ops::linear(cast_normed.narrow(0, row, count), projection.forward);
        sum += ops::cross_entropy_sum(turn_into_gradient(logits, own_targets, scale), own_targets);
        const at::Tensor dlogits = std::move(logits);
        const ops::Operand cast_dlogits = axis_.cast(dlogits, recipe.input_gradient.left,
                                                     recipe.shares_dy() ? SumOver::Either : SumOver::Columns);
        ops::write_linear_input_gradient(dnormed.narrow(0, row, count), cast_dlogits, projection.backward);
        WeightWork work;
        work.add_product(places_.output, recipe.shares_dy() ? cast_dlogits : dlogits, rows, recipe);
        take(std::move(work));
    }
    return {sum, dnormed};
}

Head::Loss Head::loss_and_input_gradient(const Weights& weights, const at::Tensor& x, const Batch& batch,
                                         const at::Tensor& scale, const Gradients& gradients) const {
    return loss_and_input_gradient(weights, x, batch, scale, [&](WeightWork work) { work.run(gradients); });
}

Place declare_embedding(const ModelSpec& spec, Unit& unit) {
    Parameter parameter = table(spec);
    parameter.is_projection = false;
    parameter.multiplied = 0;
    return unit.add({parameter}, "tok_embeddings");
}

Embedding::Embedding(const ModelSpec& spec, const TensorAxis& axis)
    : table_(place_of_table(spec)),
      axis_(axis),
      first_token_(axis.share(spec.vocab_size).begin),
      scale_(spec.scaled_embeddings ? std::optional(std::sqrt(static_cast<float>(spec.dim))) : std::nullopt) {
}

at::Tensor Embedding::scaled(const at::Tensor& x) const {
    if (!scale_) return x;
    ops::note_pass({x, x});
    return x * at::full({}, *scale_, x.options());
}

at::Tensor Embedding::forward(const Weights& weights, const at::Tensor&, const Batch& batch, RecomputeMode,
                              Tape&) const {
    return scaled(
        axis_.reduce_rows(ops::embedding(weights[table_], batch.tokens, first_token_), table_.layers));
}

at::Tensor Embedding::backward_input(const Weights&, const at::Tensor& dy, const Batch& batch, Tape&,
                                     WeightWork& work) const {
    work.add_lookup(table_, scaled(dy), batch.tokens, first_token_, axis_);
    return {};
}

}  // namespace argosy::model
