// An MLP that every token takes beside the experts that its router chooses:
//   y = Down(act(Gate x) * Up x)
// Each rank of the tensor axis has whole matrices, and computes its own rows: cut ones would be narrow, and
// all ranks' rows would have to be gathered on the links on which slots travel.
// Each pass is in two halves, so that each half can run beside a transfer of slots (experts.h). A model
// without a shared expert has no places: its functions do nothing and return undefined tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"

namespace argosy::model {

/// The tensors that a shared expert keeps from forward to backward for one microbatch.
struct SharedExpertTape {
    at::Tensor gate_up;     // [rows, 2 hidden]
    at::Tensor activation;  // [rows, hidden]

    void drop(RecomputeMode mode);
};

struct SharedExpertPlaces {
    Place gate_up, down;
    void declare(const ModelSpec& spec, int64_t layer, Unit& unit);
};

class SharedExpert {
  public:
    SharedExpert(const ModelSpec& spec, const SharedExpertPlaces& places)
        : activation_(spec.activation), places_(places) {}

    /// Fills the slots of the tape that are empty. x [rows, dim]
    void fill(const Weights& weights, const at::Tensor& x, SharedExpertTape& tape) const;
    /// Returns y [rows, dim].
    at::Tensor project(const Weights& weights, const SharedExpertTape& tape) const;

    /// dy [rows, dim] -> the gradient of gate_up. Empties the tape.
    at::Tensor backward_project(const Weights& weights, const at::Tensor& dy, SharedExpertTape& tape,
                                WeightWork& work) const;
    /// Returns the gradient of x.
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dgate_up, const at::Tensor& x,
                              WeightWork& work) const;

  private:
    const ops::Activation activation_;
    const SharedExpertPlaces places_;
};

}  // namespace argosy::model
