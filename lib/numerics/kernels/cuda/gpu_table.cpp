#include "kernels/gpu_table.h"

#include "kernels/cuda/kernels.h"

namespace argosy::kernels {
namespace {

template <class T>
constexpr GpuTypedKernels<T> typed() {
    return {.softmax_sums = cuda::softmax_sums<T>,
            .cross_entropy_gradient = cuda::cross_entropy_gradient<T>,
            .cross_entropy = cuda::cross_entropy<T>,
            .embedding = cuda::embedding<T>,
            .embedding_gradient = cuda::embedding_gradient<T>,
            .widen = cuda::widen<T>,
            .narrow = cuda::narrow<T>,
            .largest_scores = cuda::largest_scores<T>,
            .largest_magnitudes = cuda::largest_magnitudes<T>,
            .cast_to_float8 = cuda::cast_to_float8<T>,
            .cast_blocks = cuda::cast_blocks<T>,
            .rms_norm = cuda::rms_norm<T>,
            .rms_norm_backward_scratch_bytes = cuda::rms_norm_backward_scratch_bytes<T>,
            .rms_norm_backward = cuda::rms_norm_backward<T>,
            .rope = cuda::rope<T>,
            .sum_rows_scratch_bytes = cuda::sum_rows_scratch_bytes<T>,
            .sum_rows = cuda::sum_rows<T>,
            .glu = cuda::glu<T>,
            .glu_backward = cuda::glu_backward<T>,
            .combine = cuda::combine<T>};
}

}  // namespace

const GpuTable* gpu_table() {
    static constexpr GpuTable kTable = {.squared_norms_scratch_bytes = cuda::squared_norms_scratch_bytes,
                                        .squared_norms = cuda::squared_norms,
                                        .adamw = cuda::adamw,
                                        .add_rounded = cuda::add_rounded,
                                        .transpose_bytes = cuda::transpose_bytes,
                                        .float8_scales = cuda::float8_scales,
                                        .route = cuda::route,
                                        .route_backward = cuda::route_backward,
                                        .sort_slots_scratch_bytes = cuda::sort_slots_scratch_bytes,
                                        .sort_slots = cuda::sort_slots,
                                        .invert_order = cuda::invert_order,
                                        .fp32 = typed<float>(),
                                        .bf16 = typed<BFloat16>()};
    return &kTable;
}

}  // namespace argosy::kernels
