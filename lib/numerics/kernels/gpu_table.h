// This project's kernels for NVIDIA GPUs, the counterpart of table.h. Arguments are the same, but pointers
// point to memory of the calling thread's current device, and each call takes a stream. A call queues the
// kernel on the stream and returns at once; the memory behind its pointers must stay valid until the kernel
// has ended. No kernel allocates. A kernel that needs temporary memory takes `scratch`, aligned to 16 bytes;
// its `<kernel>_scratch_bytes` returns the number of bytes and reads no pointers, which may be null. Later
// work on the same stream may reuse the scratch memory.
//
// Results do not depend on how blocks are scheduled: the order of a sum depends only on the sizes and the
// device's number of multiprocessors. Results differ from the CPU kernels' by rounding. A failed launch
// throws RunError.
#pragma once

#include <span>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/float8.h"
#include "kernels/optimizer.h"
#include "kernels/rms_norm.h"
#include "kernels/routing.h"
#include "kernels/types.h"

namespace argosy::kernels {

/// The entry points for one element type. `largest`: a number that the kernel raises to the largest magnitude
/// of what it writes, as largest_magnitudes() would find it without reading the result again; null: none. CPU
/// kernels have no such argument. REQUIRES: *largest is 0, or the largest magnitude of another part.
template <class T>
struct GpuTypedKernels {
    void (*softmax_sums)(const SoftmaxSums<T>&, GpuStream);
    void (*cross_entropy_gradient)(const CrossEntropyGradient<T>&, GpuStream);
    void (*cross_entropy)(const CrossEntropy<T>&, GpuStream);  // same bits as the two kernels above
    void (*embedding)(const Embedding<T>&, GpuStream);
    /// REQUIRES: the tokens are sorted; positions[i] is the row of dx that belongs to token i. Rows of equal
    /// tokens are added in the order of i, so after a stable sort the bits are those of the CPU kernel.
    void (*embedding_gradient)(const EmbeddingGradient<T>&, const int64_t* positions, GpuStream);
    void (*widen)(const Widen<T>&, GpuStream);
    void (*narrow)(const Narrow<T>&, GpuStream);
    void (*largest_scores)(const LargestScores<T>&, GpuStream);  // no CPU kernel
    /// The CPU kernel's bits, except in NaNs. REQUIRES: `largest` is 0 everywhere.
    void (*largest_magnitudes)(const LargestMagnitudes<T>&, GpuStream);
    /// The CPU kernel's bits, except in NaNs. Either result may be null; x is read once.
    void (*cast_to_float8)(const CastToFloat8<T>&, const TransposedFloat8&, GpuStream);
    void (*cast_blocks)(const CastBlocks<T>&, const TransposedFloat8&, GpuStream);  // likewise
    void (*rms_norm)(const RmsNorm<T>&, GpuStream, float* largest);
    int64_t (*rms_norm_backward_scratch_bytes)(const RmsNormBackward<T>&);
    void (*rms_norm_backward)(const RmsNormBackward<T>&, void* scratch, GpuStream);
    void (*rope)(const Rope<T>&, GpuStream);
    int64_t (*sum_rows_scratch_bytes)(const SumRows<T>&);
    void (*sum_rows)(const SumRows<T>&, void* scratch, GpuStream);
    void (*glu)(const Glu<T>&, GpuStream, float* largest);
    /// `largest` is that of dgate and dup. REQUIRES: it is null if the rows have weights.
    void (*glu_backward)(const GluBackward<T>&, GpuStream, float* largest);
    void (*combine)(const Combine<T>&, GpuStream);  // the CPU kernel's bits, except in NaNs
};

struct GpuTable {
    /// norms[i] becomes the squared norm of tensors[i] in fp64. The order of the sum differs from the CPU
    /// kernel's.
    int64_t (*squared_norms_scratch_bytes)(std::span<const SquaredNorm> tensors);
    void (*squared_norms)(std::span<const SquaredNorm> tensors, double* norms, void* scratch, GpuStream);
    void (*adamw)(std::span<const AdamWRows> tensors, GpuStream);  // the CPU kernel's bits, except in NaNs
    void (*add_rounded)(const AddRoundedRows&, GpuStream);         // likewise
    void (*transpose_bytes)(const TransposeBytes&, GpuStream);
    void (*float8_scales)(const Float8Scales&, GpuStream);
    // No CPU kernels. REQUIRES: at most kMaxRoutedExperts.
    void (*route)(const Route&, GpuStream);
    void (*route_backward)(const RouteBackward&, GpuStream);
    int64_t (*sort_slots_scratch_bytes)(const SortSlots&);
    void (*sort_slots)(const SortSlots&, void* scratch, GpuStream);
    void (*invert_order)(const InvertOrder&, GpuStream);
    GpuTypedKernels<float> fp32;
    GpuTypedKernels<BFloat16> bf16;

    template <class T>
    const GpuTypedKernels<T>& of() const {
        if constexpr (std::is_same_v<T, float>) return fp32;
        if constexpr (std::is_same_v<T, BFloat16>) return bf16;
    }
};

/// Null in a build without CUDA.
const GpuTable* gpu_table();

}  // namespace argosy::kernels
