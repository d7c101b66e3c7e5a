// The values of enumerated keys and their names in files and on the command line. `names_of` lists the names
// in the order of the enumerators. The field table takes a key's choices from `names_of`, so a new value is
// one enumerator and one name.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "layout/slab.h"

namespace argosy::config {

/// A key that is on, off, or left to the program: true, false or "auto".
enum class Switch { Off, On, Auto };
constexpr std::array<std::string_view, 3> names_of(Switch) { return {"false", "true", "auto"}; }

enum class OptimizerName { AdamW, Muon };
constexpr std::array<std::string_view, 2> names_of(OptimizerName) { return {"AdamW", "Muon"}; }

/// The factor of the learning rate of a matrix, by its sizes (train/muon.h).
enum class MuonAdjustLr { MatchRmsAdamW, Original, Spectral };
constexpr std::array<std::string_view, 3> names_of(MuonAdjustLr) {
    return {"match_rms_adamw", "original", "spectral"};
}

enum class MuonSplit { Projection, Head };
constexpr std::array<std::string_view, 2> names_of(MuonSplit) { return {"projection", "head"}; }

enum class DecayType { Linear, Cosine, Sqrt };
constexpr std::array<std::string_view, 3> names_of(DecayType) { return {"linear", "cosine", "sqrt"}; }

/// The kernels of attention on GPUs within documents, windows and parts of sequences (gpu/cudnn.h).
enum class MaskedAttention { Flash, Cudnn };
constexpr std::array<std::string_view, 2> names_of(MaskedAttention) { return {"flash", "cudnn"}; }

enum class Precision { Float16, BFloat16, Float32, Float64 };
constexpr std::array<std::string_view, 4> names_of(Precision) {
    return {"float16", "bfloat16", "float32", "float64"};
}

enum class ReshardAfterForward { Default, Always, Never };
constexpr std::array<std::string_view, 3> names_of(ReshardAfterForward) {
    return {"default", "always", "never"};
}

enum class RotateMethod { AllGather, Ring, AllToAll };
constexpr std::array<std::string_view, 3> names_of(RotateMethod) { return {"allgather", "ring", "alltoall"}; }

constexpr std::array<std::string_view, 2> names_of(layout::ContextBalance) { return {"headtail", "none"}; }

enum class PipelineSchedule {
    OneForwardOneBackward,
    GPipe,
    InterleavedOneForwardOneBackward,
    InterleavedZeroBubble,
    ZbvZeroBubble
};
constexpr std::array<std::string_view, 5> names_of(PipelineSchedule) {
    return {"1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"};
}

/// The parts of a model that compute with other number types, by the section of their keys.
enum class Converter { Float8, Mx };
constexpr std::array<std::string_view, 2> names_of(Converter) {
    return {"quantize.linear.float8", "quantize.linear.mx"};
}

/// ops/float8.h defines the recipes.
enum class Float8Recipe { Tensorwise, Rowwise, RowwiseWithWeightGradient, Blockwise };
constexpr std::array<std::string_view, 4> names_of(Float8Recipe) {
    return {"tensorwise", "rowwise", "rowwise_with_gw_hp", "blockwise"};
}
enum class MxRecipe { Floor, Ceil };
constexpr std::array<std::string_view, 2> names_of(MxRecipe) {
    return {"mxfp8_cublas", "mxfp8_cublas_rceil"};
}

enum class RecomputeMode { None, Selective, Full };
constexpr std::array<std::string_view, 3> names_of(RecomputeMode) { return {"none", "selective", "full"}; }

/// TorchTitan's async_with_pinned_mem is missing because it would be the same as Async here.
enum class AsyncMode { Disabled, Async };
constexpr std::array<std::string_view, 2> names_of(AsyncMode) { return {"disabled", "async"}; }

/// The parts of a checkpoint besides the weights; lib/trainer/resume/FORMAT.md lists the contents of each.
enum class SavedPart { Optimizer, DataLoader, TrainState };
constexpr std::array<std::string_view, 3> names_of(SavedPart) {
    return {"optimizer", "dataloader", "train_state"};
}

enum class GpuPathChoice { Auto, Nccl };
constexpr std::array<std::string_view, 2> names_of(GpuPathChoice) { return {"auto", "nccl"}; }

template <class Choice>
constexpr std::string_view name_of(Choice choice) {
    return names_of(choice)[static_cast<std::size_t>(choice)];
}

/// The value of another room for a value of a key: `values` are in the order of the key's.
template <class Choice, class Value, std::size_t N>
Value one_of(Choice choice, const Value (&values)[N]) {
    static_assert(N == names_of(Choice{}).size());
    return values[static_cast<std::size_t>(choice)];
}

}  // namespace argosy::config
