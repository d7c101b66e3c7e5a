// The table of the kernels for processors. This file is compiled once for each instruction set (kernels.h).
#include "kernels/table.h"

#include "kernels/cpu/kernels.h"

#define ARGOSY_STRING_OF(name) #name
#define ARGOSY_STRING(name) ARGOSY_STRING_OF(name)

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

template <class T>
constexpr TypedKernels<T> kTyped = {
    .attention = attention<T>,
    .attention_backward = attention_backward<T>,
    .widen = widen<T>,
    .narrow = narrow<T>,
    .softmax_sums = softmax_sums<T>,
    .cross_entropy_gradient = cross_entropy_gradient<T>,
    .embedding = embedding<T>,
    .embedding_gradient = embedding_gradient<T>,
    .combine = combine<T>,
    .matmul = matmul<T, T>,
    .matmul_to_float = matmul<T, float>,
    .rms_norm = rms_norm<T>,
    .rms_norm_backward = rms_norm_backward<T>,
    .rope = rope<T>,
    .sum_rows = sum_rows<T>,
    .glu = glu<T>,
    .glu_backward = glu_backward<T>,
    .largest_magnitudes = largest_magnitudes<T>,
    .cast_to_float8 = cast_to_float8<T>,
};

}  // namespace

extern constinit const Table kTable = {
    .name = ARGOSY_STRING(ARGOSY_VARIANT),
    .squared_norm = squared_norm,
    .fp32 = kTyped<float>,
    .bf16 = kTyped<BFloat16>,
    .adamw = adamw,
    .add_rounded = add_rounded,
    .widen_float8 = widen_float8,
};

}  // namespace argosy::kernels::ARGOSY_VARIANT
