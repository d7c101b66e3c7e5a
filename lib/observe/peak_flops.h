// Peak speed of a device: the denominator of model FLOP utilisation (MFU). An unknown device gets no figure
// or its measured one, never another device's figure.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

#include "model/model_spec.h"

namespace argosy::observe {

enum class PeakSource { None, Datasheet, MeasuredGemm };
const char* peak_source_name(PeakSource source);  // "none", "datasheet", "measured GEMM"

/// The peak of one device in FLOP/s, and where the figure comes from.
struct PeakFlops {
    double flops_per_second = 0;
    PeakSource source = PeakSource::None;
    bool known() const { return source != PeakSource::None; }
};

/// Dense peak of matrix products of `type` with fp32 sums (bf16 and fp16 on tensor cores, fp32 without TF32),
/// from the maker's datasheet, for the GPU that its driver calls `device_name` ("NVIDIA H200"). The source is
/// None for other types, a CPU, an unknown name, and a name that fits several products (a bare "H100") or a
/// part of one (MIG slices, laptop variants).
PeakFlops datasheet_peak(std::string_view device_name, at::ScalarType type);

/// Measures the best rate of square matrix products of `type` on a device within about `seconds`: at least
/// two products by ops::linear, called as a layer calls it, of a size that grows with the machine's speed.
/// The program's own products reach this rate under good conditions, so a model's rate is a fraction of it.
/// Ranks that share a machine should measure at the same time, because they also compute at the same time.
PeakFlops measure_gemm_peak(at::ScalarType type, double seconds = 0.3, c10::Device device = c10::kCPU);

// The cost of a training token in FLOPs, by the formulas of published MFU figures. Model FLOPs are those that
// the mathematics needs: recomputed activations and padding do not count.

/// Model FLOPs of one training token, forward and backward, at sequence length T. In these formulas
///   N = all parameters but the input embedding, which is a look-up (a tied table counts, as the head),
///   L = layers,
///   d = num_heads * head_dim,
/// the weights cost 6 N (a multiplication and an addition each, once forward and twice backward), and
/// attention costs
///   causal       6 L d T: each token attends to T / 2 others on average; what a causal kernel computes
///   non-causal  12 L d T: as if each attended to all T; PaLM's and TorchTitan's convention, a higher figure
struct FlopsPerToken {
    double causal = 0;
    double noncausal = 0;
};
FlopsPerToken flops_per_token(const model::ModelSpec& spec, int64_t sequence_length);

}  // namespace argosy::observe
