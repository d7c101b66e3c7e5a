// One microbatch: what a layer needs to know of the tokens that it works on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::model {

struct Batch {
    at::Tensor tokens;   // [num_sequences * seq_len], int64
    at::Tensor targets;  // likewise: the token after each; negative where it does not count
    int64_t num_sequences = 0, seq_len = 0;
};

}  // namespace argosy::model
