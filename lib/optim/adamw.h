// AdamW over this rank's pieces of the parameters, in the type of the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace argosy::optim {

struct AdamWOptions {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

class AdamW {
  public:
    struct Item {
        at::Tensor weights, gradient;  // of one shape and type; both stay the caller's
        bool decay;
    };
    AdamW(const AdamWOptions& options, const std::vector<Item>& items);

    /// Updates the weights in place. Where `skip` (fp32 scalar on the device) is 1, nothing changes, the step
    /// count included.
    void step(double lr, const at::Tensor& skip);

  private:
    /// What one fused launch works on: all items of one weight decay.
    struct Group {
        double weight_decay = 0;
        std::vector<at::Tensor> weights, gradients, first_moments, second_moments;
    };
    Group& group(bool decay) { return groups_[decay ? 1 : 0]; }

    AdamWOptions options_;
    Group groups_[2];
    at::Tensor num_steps_;  // updates done, fp32 scalar
};

}  // namespace argosy::optim
