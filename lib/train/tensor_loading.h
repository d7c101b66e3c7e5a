// Fills this rank's pieces of weights and states from wherever whole tensors lie, reading only the bytes of
// the pieces.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"
#include "train/run_state.h"

namespace argosy::train {

/// UserError unless the source has exactly this model's weights, and the moments of each if they are wanted,
/// in these shapes. Looks at what is there alone, so that all ranks find the same.
enum class Wanted { Weights, WeightsAndMoments };
void check_tensors(const checkpoint::TensorSource& source, const model::ModelSpec& spec, Wanted wanted);

/// What is not stored in the type that it is held in, one line for people; empty where nothing is converted.
/// REQUIRES: check_tensors went well.
std::string conversions(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

/// Reads the pieces, in the source's order. What is stored in another type is rounded to the nearest; only
/// then a piece is in memory a second time. REQUIRES: check_tensors went well.
void load_tensors(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

}  // namespace argosy::train
