// AdamW over this rank's shards of the parameters. One pass over the elements multiplies the gradient by a
// factor, updates both moments and the weight, rounds them, and writes the weight in the compute type. The
// computation is in fp32 (fp64 for fp64 weights), whatever the types of the tensors. Weights and moments in
// bf16 are rounded stochastically. AdamW owns the moments; the caller owns all other tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/param_spec.h"

namespace argosy::train {

struct AdamWOptions {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    std::optional<at::ScalarType> moments = {};  // their type; none: the accumulation type of the weights
    uint64_t seed = 0;                           // of stochastic rounding
};

class AdamW {
  public:
    /// This rank's shard of one parameter. REQUIRES: the tensors are contiguous.
    struct Parameter {
        std::string name;       // names its moments and seeds its rounding
        layout::SlabRows rows;  // the elements of the whole parameter that this shard has
        at::Tensor weights;     // fp64, fp32 or bf16
        at::Tensor compute;     // the weights in the compute type; the tensor `weights` if the types agree
        at::Tensor gradient;    // fp64 for fp64 weights, else fp32 or bf16
        bool decay;             // whether weight decay applies
    };
    struct Moments {
        at::Tensor first, second;
    };

    AdamW(const AdamWOptions& options, std::vector<Parameter> parameters);

    /// Updates weights and compute in place, with the gradients times `gradient_factor`. The gradients do not
    /// change.
    void step(double lr, double gradient_factor);

    /// The moments of each parameter, and the number of updates done: the whole state besides the weights.
    const std::vector<Moments>& moments() const { return moments_; }
    int64_t num_updates() const { return num_updates_; }
    void set_num_updates(int64_t number) { num_updates_ = number; }

  private:
    AdamWOptions options_;
    std::vector<Parameter> parameters_;
    std::vector<Moments> moments_;
    int64_t num_updates_ = 0;
};

}  // namespace argosy::train
