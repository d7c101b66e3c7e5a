// The second half of a block with experts in place of one MLP:
//   y = x + sum over the chosen experts e of w_e Down_e(act(Gate_e n) * Up_e n)    with n = norm(x), or x
// A router chooses the experts of each token and their weights w_e (ops/routing.h); every token reaches all
// of its experts. A model may add a shared expert to the sum, which computes while slots travel. Each rank of
// the tensor axis sends its own rows through the experts.
//
// A slot is a token at one of its experts. The slots of an expert are adjacent rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/expert_axis.h"
#include "model/half.h"
#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/shared_expert.h"
#include "model/tensor_axis.h"
#include "ops/routing.h"

namespace argosy::model {

/// The tensors that this half keeps, as FeedForwardTape. The input is not cast.
struct ExpertsTape : HalfTape {
    /// Stays in every recompute mode: nearly equal logits may change places when they are computed again.
    ops::Routing routing;
    SlotExchange exchange;
    at::Tensor sequence_loads;  // Balancing::add(): stays, too
    at::Tensor logits;          // [rows, experts]
    // Rows of this rank's experts.
    at::Tensor slots;       // [slots, dim]; if they came from other ranks, else undefined
    at::Tensor weights;     // [slots]
    at::Tensor gate_up;     // [slots, 2 hidden]
    at::Tensor activation;  // [slots, hidden], with the weights
    SharedExpertTape shared;

    void drop(RecomputeMode mode);
    /// A tape with the choice alone.
    ExpertsTape choice() const;
};

struct ExpertsPlaces {
    HalfPlaces norms;
    Place router, gate_up, down;
    SharedExpertPlaces shared;
    void declare(const ModelSpec& spec, int64_t layer, Unit& unit);
};

class Experts {
  public:
    /// REQUIRES: the axes outlive the object, and the model has experts.
    Experts(const ModelSpec& spec, int64_t layer, const ExpertsPlaces& places, const TensorAxis& axis,
            const ExpertAxis& expert_axis)
        : layer_(layer),
          router_(spec.experts->router),
          activation_(spec.activation),
          places_(places),
          norms_(spec, places.norms, axis),
          shared_(spec, places.shared),
          tensor_axis_(axis),
          axis_(expert_axis) {}

    // They do what FeedForward's functions do.
    void fill(const Weights& weights, const at::Tensor& x, const Batch& batch, ExpertsTape& tape) const;
    bool must_add(const ExpertsTape& tape) const { return norms_.must_add(tape); }
    at::Tensor add_to(const at::Tensor& x, const Weights& weights, ExpertsTape& tape) const;
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const at::Tensor& x,
                              const Batch& batch, ExpertsTape& tape, WeightWork& work) const;

  private:
    void choose(const Weights& weights, const Batch& batch, ExpertsTape& tape) const;
    at::Tensor logits_gradient(const at::Tensor& dweights, const Batch& batch, const ExpertsTape& tape) const;
    RoutedRows rows_of(const Batch& batch) const;
    // Rows of tokens [rows, dim] for their slots, and the sums of slots for their tokens.
    at::Tensor to_slots(const at::Tensor& rows, const ops::Routing& routing) const;
    at::Tensor sum_of_slots(const at::Tensor& slots, const ops::Routing& routing) const;

    const int64_t layer_;
    const ops::Router router_;
    const ops::Activation activation_;
    const ExpertsPlaces places_;
    const HalfNorms norms_;
    const SharedExpert shared_;
    const TensorAxis& tensor_axis_;
    const ExpertAxis& axis_;
};

}  // namespace argosy::model
