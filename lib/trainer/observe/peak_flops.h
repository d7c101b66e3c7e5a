// The peak speed of a device, which is the denominator of model FLOP utilisation (MFU). An unknown
// device gets no figure or its measured figure, never another device's figure.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
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

/// Looks up the dense peak of matrix products of `type` with fp32 sums (bf16 on tensor cores, fp32
/// without TF32) in the maker's datasheets. `device_name` is the driver's name of the GPU ("NVIDIA H200").
/// The source is None for other types, a CPU, an unknown name, a name that fits several products (a bare
/// "H100"), and a name that fits a part of a product (MIG slices, laptop variants).
PeakFlops datasheet_peak(std::string_view device_name, at::ScalarType type);

/// Measures the best rate of square matrix products of `type` on a device within about `seconds`, and makes
/// at least two measurements. The products run by ops::linear, as in a layer, and their size grows with the
/// machine's speed. The program's own products reach this rate under good conditions, so a model's rate is a
/// fraction of it. Ranks that share a machine should measure at the same time, because they also compute at
/// the same time.
PeakFlops measure_gemm_peak(at::ScalarType type, double seconds = 0.3, c10::Device device = c10::kCPU);

/// The same product, computed again and again.
struct SustainedProducts {
    double flops_per_second = 0;  // in the second half of the time, when clocks have settled
    uint64_t hash = 0;            // of the first result; equal on all healthy devices of one kind
    int64_t num_products = 0;
    int64_t num_different = 0;  // results that are not those of the first product, bit for bit
};
using Multiply = std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)>;

/// Multiplies two fixed matrices of random numbers for about `seconds`, at least twice, and compares each
/// result with the first. A short measurement ends before a GPU is hot and reaches its power limit. On a GPU
/// the comparisons cost about 3 % of the rate. REQUIRES: the thread holds an OpsContext.
SustainedProducts sustain_products(at::ScalarType type, double seconds, c10::Device device,
                                   const Multiply& multiply);
SustainedProducts sustain_products(at::ScalarType type, double seconds, c10::Device device = c10::kCPU);

}  // namespace argosy::observe
