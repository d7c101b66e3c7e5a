// Fills this rank's pieces of weights and optimizer states from a source of whole tensors (a checkpoint or a
// Hugging Face folder). Only the bytes of the pieces are read.
#pragma once

#include <span>
#include <string>

#include "checkpoint/tensor_source.h"
#include "resume/run_state.h"

namespace argosy::resume {

/// Reads nothing. UserError if a tensor is missing, has another shape, or has a type that no weight can have.
void check_tensors(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

/// Reads the pieces in the source's order. Elements stored in another type are rounded to the nearest. A
/// piece is held in memory twice only if its type is converted or it is on a GPU. Throws as check_tensors()
/// before anything is read, and as TensorSource::read(), after which only some pieces are filled.
void load_tensors(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

/// Text for the log on tensors whose stored type differs from the type in memory; empty if there are none.
/// REQUIRES: load_tensors() succeeded.
std::string conversions(const checkpoint::TensorSource& source, std::span<const HeldTensor> tensors);

}  // namespace argosy::resume
