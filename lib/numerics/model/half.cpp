#include "model/half.h"

#include <ATen/TensorOperators.h>

#include <tuple>

#include "model/norm.h"
#include "ops/work.h"

namespace argosy::model {

using Rows = TensorAxis::Rows;

void HalfPlaces::declare_before(const ModelSpec& spec, const char* name, Unit& unit) {
    if (spec.norms != NormPlace::After) before = unit.add({norm_weight(spec, name, spec.dim)});
}

void HalfPlaces::declare_after(const ModelSpec& spec, const char* name, Unit& unit) {
    if (spec.norms != NormPlace::Before) after = unit.add({norm_weight(spec, name, spec.dim)});
}

void HalfNorms::fill(const Weights& weights, const at::Tensor& x, const ops::Recipe& recipe,
                     ops::SumOver summed, HalfTape& tape) const {
    if (tape.input.defined()) return;
    if (!places_.before) {
        tape.input = axis_.cast_if_shared(x, recipe, Rows::Own, summed);
        return;
    }
    std::tie(tape.input, tape.inverse_rms) =
        axis_.normed(x, norm_of(spec_, weights[places_.before]), recipe, summed);
}

at::Tensor HalfNorms::add_to(const at::Tensor& x, const Weights& weights, const ops::Operand& operand,
                             Place matrix, Place bias, HalfTape& tape) const {
    if (!places_.after) return axis_.row(operand, weights.stack(matrix), weights[bias], x);
    const bool repeats = tape.added.defined();
    return add(x, weights, repeats ? tape.added : axis_.row(operand, weights.stack(matrix), weights[bias]),
               tape);
}

at::Tensor HalfNorms::add(const at::Tensor& x, const Weights& weights, const at::Tensor& f,
                          HalfTape& tape) const {
    if (!places_.after) {
        ops::note_pass({f, x, f});
        return f.add(x);
    }
    tape.added = f;
    auto [y, inverse_rms] = ops::rms_norm(tape.added, norm_of(spec_, weights[places_.after]));
    tape.added_inverse_rms = inverse_rms;
    ops::note_pass({y, x, y});
    return y.add_(x);
}

at::Tensor HalfNorms::gradient_of_added(const Weights& weights, const at::Tensor& dy, HalfTape& tape,
                                        WeightWork& work) const {
    if (!places_.after) return dy;
    const auto [dadded, dnorm] = ops::rms_norm_backward(
        dy, tape.added, norm_of(spec_, weights[places_.after]), tape.added_inverse_rms);
    work.add_value(places_.after, dnorm);
    tape.added.reset();
    return dadded;
}

at::Tensor HalfNorms::gradient_of_x(const Weights& weights, const at::Tensor& dinput, const at::Tensor& dy,
                                    const at::Tensor& x, const HalfTape& tape, WeightWork& work) const {
    if (!places_.before) {
        ops::note_pass({dinput, dy, dinput});
        return dinput.add_(dy);
    }
    auto [dx, dnorm] =
        ops::rms_norm_backward(dinput, x, norm_of(spec_, weights[places_.before]), tape.inverse_rms, dy);
    work.add_value(places_.before, dnorm);
    return dx;
}

}  // namespace argosy::model
