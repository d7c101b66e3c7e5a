// What both halves of a block have in common: the norms at their ends and the bypass of the residual stream.
//   y = x + after(f(before(x)))
// A model has one of the two norms, or both.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"

namespace argosy::model {

/// The tensors that a half keeps for its norms. Shapes as in attention.h.
struct HalfTape {
    /// [rows, dim]: x, normalised if the model has the norm before. Cast if one cast serves both of the
    /// products that read it.
    ops::Operand input;
    at::Tensor inverse_rms;
    // If there is a norm after:
    at::Tensor added;  // [rows, dim]: f, before that norm
    at::Tensor added_inverse_rms;
};

struct HalfPlaces {
    Place before, after;
    // Each declares its norm if the model has it.
    void declare_before(const ModelSpec& spec, const char* name, Unit& unit);
    void declare_after(const ModelSpec& spec, const char* name, Unit& unit);
};

class HalfNorms {
  public:
    /// REQUIRES: the axis outlives the object.
    HalfNorms(const ModelSpec& spec, const HalfPlaces& places, const TensorAxis& axis)
        : spec_(spec), places_(places), axis_(axis) {}

    /// Fills the input, unless it is there. `recipe`: that of the half's first product.
    void fill(const Weights& weights, const at::Tensor& x, const ops::Recipe& recipe, ops::SumOver summed,
              HalfTape& tape) const;
    /// Returns y; f is the product of `operand` with `matrix`. Fills the slots of the norm after.
    at::Tensor add_to(const at::Tensor& x, const Weights& weights, const ops::Operand& operand, Place matrix,
                      Place bias, HalfTape& tape) const;

    /// The same, for an f that is there.
    at::Tensor add(const at::Tensor& x, const Weights& weights, const at::Tensor& f, HalfTape& tape) const;

    /// Whether add_to() fills slots that are empty, so that a recompute needs it.
    bool must_add(const HalfTape& tape) const { return places_.after && !tape.added.defined(); }

    /// Returns the gradient of f.
    at::Tensor gradient_of_added(const Weights& weights, const at::Tensor& dy, HalfTape& tape,
                                 WeightWork& work) const;
    /// Returns the gradient of x from that of the input and, through the bypass, from that of y.
    at::Tensor gradient_of_x(const Weights& weights, const at::Tensor& dinput, const at::Tensor& dy,
                             const at::Tensor& x, const HalfTape& tape, WeightWork& work) const;

  private:
    const ModelSpec spec_;
    const HalfPlaces places_;
    const TensorAxis& axis_;
};

}  // namespace argosy::model
