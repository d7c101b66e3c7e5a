#include "model/block.h"

#include <cmath>
#include <utility>

#include "base/error.h"

namespace argosy::model {

using ops::SumOver;

namespace {

BlockPlaces places_of(const ModelSpec& spec, int64_t layer) {
    Unit unit;
    return declare_block(spec, layer, unit);
}

}  // namespace

RopeTables RopeTables::first(int64_t seq_len) const {
    const auto first = [&](const ops::RopeTable& table) {
        return ops::RopeTable{table.cos.narrow(0, 0, seq_len), table.sin.narrow(0, 0, seq_len),
                              table.head_dim};
    };
    return {first(all), first(windowed)};
}

RopeTables rope_tables(const ModelSpec& spec, int64_t seq_len, const at::TensorOptions& options,
                       std::optional<int64_t> longest_sequence) {
    ARGOSY_CHECK(spec.rotary_dim == 0 || !spec.query_scalar,
                 "a rotation of {} of {} elements cannot divide the scores", spec.rotary_dim, spec.head_dim);
    // A factor of q and of k: attention divides the scores by sqrt(head_dim), the model by
    // sqrt(query_scalar).
    const auto head_dim = static_cast<double>(spec.head_dim);
    const double factor = std::pow(head_dim / spec.query_scalar.value_or(head_dim), 0.25);
    const double scaled = spec.rope_scaling ? spec.rope_scaling->attention_factor : 1;
    const auto table = [&](const std::vector<double>& frequencies, double scale) {
        ops::RopeTable made = ops::make_rope_table(frequencies, scale, seq_len, options);
        made.head_dim = spec.head_dim;
        return made;
    };
    const ops::RopeTable all =
        table(rope_frequencies(spec, longest_sequence.value_or(seq_len)), scaled * factor);
    if (!spec.window_rope_theta) return {all, all};
    return {all, table(window_rope_frequencies(spec), factor)};
}

void Tape::drop(RecomputeMode mode) {
    if (mode == RecomputeMode::Full) {
        *this = Tape{.input = input, .experts = experts.choice()};
        return;
    }
    attention.drop(mode);
    feed_forward.drop(mode);
    experts.drop(mode);
}

BlockPlaces declare_block(const ModelSpec& spec, int64_t layer, Unit& unit) {
    BlockPlaces places;
    places.attention.declare_matrices(spec, layer, unit);
    const bool has_experts = layer_spec(spec, layer).has_experts;
    if (has_experts) {
        places.experts.declare(spec, layer, unit);
    } else {
        places.feed_forward.declare_matrices(spec, layer, unit);
    }
    places.attention.declare_vectors(spec, unit);
    if (!has_experts) places.feed_forward.declare_vectors(spec, unit);
    return places;
}

Block::Block(const ModelSpec& spec, int64_t layer, const TensorAxis& axis, const ContextAxis& context,
             const ExpertAxis& expert_axis, const RopeTables& rope)
    : attention_(spec, layer_spec(spec, layer), places_of(spec, layer).attention, axis, context,
                 rope.of(layer_spec(spec, layer))) {
    const BlockPlaces places = places_of(spec, layer);
    if (layer_spec(spec, layer).has_experts) {
        experts_.emplace(spec, layer, places.experts, axis, expert_axis);
    } else {
        feed_forward_.emplace(spec, places.feed_forward, axis);
    }
}

void Block::fill_half(const Weights& weights, const at::Tensor& x, const Batch& batch, SumOver summed,
                      SumOver activation_summed, Tape& tape) const {
    if (experts_) return experts_->fill(weights, x, batch, tape.experts);
    feed_forward_->fill(weights, x, summed, activation_summed, tape.feed_forward);
}

at::Tensor Block::add_half(const at::Tensor& x, const Weights& weights, Tape& tape) const {
    if (experts_) return experts_->add_to(x, weights, tape.experts);
    return feed_forward_->add_to(x, weights, tape.feed_forward);
}

at::Tensor Block::forward(const Weights& weights, const at::Tensor& x, const Batch& batch, RecomputeMode mode,
                          Tape& tape) const {
    // A forward product sums over the columns of its input, a weight's gradient over the rows. If step 4
    // drops the inputs' casts, they need only serve the forward products: recompute() makes them again for
    // the weights' gradients.
    const auto summed = mode == RecomputeMode::None ? SumOver::Either : SumOver::Columns;
    // 1. attention: input [rows, dim] -> middle [rows, dim]
    tape.input = x;
    attention_.fill(weights, x, batch, summed, tape.attention);
    tape.middle = attention_.add_to(x, weights, tape.attention);
    // 2. feed-forward: middle [rows, dim] -> activation [tokens, hidden]
    fill_half(weights, tape.middle, batch, summed, summed, tape);
    // 3. project back and add to the residual stream: y [rows, dim]
    at::Tensor y = add_half(tape.middle, weights, tape);
    // 4. drop what recompute() will make again, and what backward does not read
    tape.drop(mode);
    return y;
}

void Block::recompute(const Weights& weights, const Batch& batch, Tape& tape) const {
    // RecomputeMode::Selective kept the results of the forward products: the casts serve weights' gradients
    // only. Full repeats these products; the last one, whose input is the activation, only for a norm after
    // it.
    const auto summed = tape.attention.v.defined() ? SumOver::Rows : SumOver::Either;
    attention_.fill(weights, tape.input, batch, summed, tape.attention);
    if (!tape.middle.defined()) tape.middle = attention_.add_to(tape.input, weights, tape.attention);
    const bool repeats_last =
        experts_ ? experts_->must_add(tape.experts) : feed_forward_->must_add(tape.feed_forward);
    fill_half(weights, tape.middle, batch, summed, repeats_last ? summed : SumOver::Rows, tape);
    if (repeats_last) add_half(tape.middle, weights, tape);
    tape.drop(RecomputeMode::None);
}

/// The residual stream bypasses each half of the block: each half adds the gradient of its bypass.
at::Tensor Block::backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                                 WeightWork& work) const {
    // dy [rows, dim] -> dmiddle [rows, dim] -> dx [rows, dim]
    const at::Tensor dmiddle =
        experts_ ? experts_->backward_input(weights, dy, tape.middle, batch, tape.experts, work)
                 : feed_forward_->backward_input(weights, dy, tape.middle, tape.feed_forward, work);
    at::Tensor dx = attention_.backward_input(weights, dmiddle, tape.input, batch, tape.attention, work);
    tape = {};
    return dx;
}

}  // namespace argosy::model
