// AdamW over this rank's pieces of the parameters. In one pass over an element: the gradient times a factor,
// the running means, the update, its rounding, and the copy that computation uses. Computed in fp32 (fp64 for
// fp64 weights) whatever the types; what is kept in bf16 is rounded stochastically.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/param_spec.h"

namespace argosy::optim {

struct AdamWOptions {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    std::optional<at::ScalarType> moments = {};  // bf16 in place of fp32; none: fp32, of fp64 weights fp64
    uint64_t seed = 0;                           // of stochastic rounding
};

class AdamW {
  public:
    struct Item {
        std::string name;       // of the parameter: what names its states, and keys its rounding
        layout::SlabRows rows;  // which elements of the whole parameter these are
        at::Tensor weights;     // fp64, fp32 or bf16
        at::Tensor compute;     // of the same shape; the same tensor as `weights` where the types agree
        at::Tensor gradient;    // fp64 for fp64 weights, else fp32
        bool decay;
    };  // the tensors are contiguous and stay the caller's
    struct Moments {
        at::Tensor first, second;
    };

    AdamW(const AdamWOptions& options, std::vector<Item> items);

    /// Updates weights and compute in place with the gradients times `factor`, which stay as they are.
    void step(double lr, double factor);

    /// Of each item, and the updates done: with the weights, all that an update depends on.
    const std::vector<Moments>& moments() const { return moments_; }
    int64_t num_updates() const { return num_updates_; }
    void set_num_updates(int64_t number) { num_updates_ = number; }

  private:
    AdamWOptions options_;
    std::vector<Item> items_;
    std::vector<Moments> moments_;
    int64_t num_updates_ = 0;
};

}  // namespace argosy::optim
