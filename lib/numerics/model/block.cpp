#include "model/block.h"

namespace argosy::model {

using ops::SumOver;

namespace {

BlockPlaces places_of(const ModelSpec& spec) {
    Unit unit;
    return declare_block(spec, /*layer=*/0, unit);
}

}  // namespace

ops::RopeTable rope_table(const ModelSpec& spec, int64_t seq_len, const at::TensorOptions& options) {
    const double attention_factor = spec.rope_scaling ? spec.rope_scaling->attention_factor : 1;
    return ops::make_rope_table(rope_frequencies(spec), attention_factor, seq_len, options);
}

void Tape::drop(RecomputeMode mode) {
    if (mode == RecomputeMode::Full) {
        *this = Tape{.input = input};
        return;
    }
    attention.drop(mode);
    feed_forward.drop(mode);
}

BlockPlaces declare_block(const ModelSpec& spec, int64_t layer, Unit& unit) {
    BlockPlaces places;
    places.attention.declare_matrices(spec, layer, unit);
    places.feed_forward.declare_matrices(spec, layer, unit);
    places.attention.declare_vectors(spec, unit);
    places.feed_forward.declare_vectors(spec, unit);
    return places;
}

Block::Block(const ModelSpec& spec, const TensorAxis& axis, const ContextAxis& context,
             const ops::RopeTable& rope)
    : Block(spec, places_of(spec), axis, context, rope) {}

Block::Block(const ModelSpec& spec, const BlockPlaces& places, const TensorAxis& axis,
             const ContextAxis& context, const ops::RopeTable& rope)
    : attention_(spec, places.attention, axis, context, rope),
      feed_forward_(spec, places.feed_forward, axis) {}

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
    feed_forward_.fill(weights, tape.middle, summed, summed, tape.feed_forward);
    // 3. project back and add to the residual stream: y [rows, dim]
    at::Tensor y = feed_forward_.add_to(tape.middle, weights, tape.feed_forward);
    // 4. drop what recompute() will make again, and what backward does not read
    tape.drop(mode);
    return y;
}

void Block::recompute(const Weights& weights, const Batch& batch, Tape& tape) const {
    // RecomputeMode::Selective kept the results of the forward products: the casts serve weights' gradients
    // only. Full repeats these products, but for the last one, whose input is the activation.
    const auto summed = tape.attention.v.defined() ? SumOver::Rows : SumOver::Either;
    attention_.fill(weights, tape.input, batch, summed, tape.attention);
    if (!tape.middle.defined()) tape.middle = attention_.add_to(tape.input, weights, tape.attention);
    feed_forward_.fill(weights, tape.middle, summed, /*activation_summed=*/SumOver::Rows, tape.feed_forward);
    tape.drop(RecomputeMode::None);
}

/// The residual stream bypasses each half of the block: each half adds the gradient of its bypass.
at::Tensor Block::backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                                 WeightWork& work) const {
    // dy [rows, dim] -> dmiddle [rows, dim] -> dx [rows, dim]
    const at::Tensor dmiddle =
        feed_forward_.backward_input(weights, dy, tape.middle, tape.feed_forward, work);
    at::Tensor dx = attention_.backward_input(weights, dmiddle, tape.input, batch, tape.attention, work);
    tape = {};
    return dx;
}

}  // namespace argosy::model
