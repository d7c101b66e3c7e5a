// The tokens of one microbatch, as layers read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::model {

struct Batch {
    at::Tensor tokens;   // [num_sequences * seq_len], int64
    at::Tensor targets;  // same shape and type: the next token of each; negative if it does not count
    int64_t num_sequences = 0, seq_len = 0;
};

}  // namespace argosy::model
