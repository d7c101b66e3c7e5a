// Fills this rank's pieces of weights and states from wherever whole tensors lie, reading only the bytes of
// the pieces.
#pragma once

#include <span>
#include <string>

#include "checkpoint/tensor_source.h"
#include "train/run_state.h"

namespace argosy::train {

/// UserError, with nothing read, for tensors that are missing, of another shape, or of no type of weights.
void check_tensors(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

/// Reads the pieces, in the source's order. What is stored in another type is rounded to the nearest; only
/// then, and for pieces on a GPU, a piece is in memory a second time. Errors as of check_tensors before
/// anything is read, and as of TensorSource::read, which leave some pieces read.
void load_tensors(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

/// What is not stored in the type that it is held in, for people; empty where nothing is converted. REQUIRES:
/// load_tensors went well.
std::string conversions(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

}  // namespace argosy::train
