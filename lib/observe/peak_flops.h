// Peak speed of a device: the denominator of model FLOP utilisation (MFU). An unknown device gets no figure
// or its measured one, never another device's figure.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string_view>

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

}  // namespace argosy::observe
