// AdamW over this rank's shards of the parameters. One pass over the elements multiplies the gradient by a
// factor, updates both moments and the weight, rounds them, and writes the weight in the compute type. The
// computation is in fp32 (fp64 for fp64 weights), whatever the types of the tensors. Weights and moments in
// bf16 are rounded stochastically.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "train/optimizer.h"

namespace argosy::train {

struct AdamWOptions {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    std::optional<at::ScalarType> moments = {};  // their type; none: the accumulation type of the weights
    uint64_t seed = 0;                           // of stochastic rounding
};

class AdamW : public Optimizer {
  public:
    struct Moments {
        at::Tensor first, second;
    };

    AdamW(const AdamWOptions& options, std::vector<OptimizedParameter> parameters);

    void update(const Update& update) override;
    std::vector<State> states() const override;  // "first" and "second" of each parameter

  private:
    AdamWOptions options_;
    std::vector<OptimizedParameter> parameters_;
    std::vector<Moments> moments_;
};

}  // namespace argosy::train
