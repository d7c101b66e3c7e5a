// This project's kernels for CPUs: raw pointers, one thread per call, and no allocation except the thread's
// scratch memory (scratch.h). Every source in cpu/ is compiled once per instruction set. A Table holds the
// entry points for one instruction set. The program uses the best table that the processor supports, so one
// build runs on every processor.
//
// A kernel is written once, in portable vector code over a few operations; cpu/vector_*.h implement these
// operations for each instruction set. Results of different tables differ by rounding only.
#pragma once

#include <span>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/float8.h"
#include "kernels/matmul.h"
#include "kernels/optimizer.h"
#include "kernels/rms_norm.h"
#include "kernels/types.h"

namespace argosy::kernels {

/// The entry points for one element type.
template <class T>
struct TypedKernels {
    void (*attention)(const Attention<T>&);
    void (*attention_backward)(const AttentionBackward<T>&);
    void (*widen)(const Widen<T>&);
    void (*narrow)(const Narrow<T>&);
    void (*softmax_sums)(const SoftmaxSums<T>&);
    void (*cross_entropy_gradient)(const CrossEntropyGradient<T>&);
    void (*embedding)(const Embedding<T>&);
    void (*embedding_gradient)(const EmbeddingGradient<T>&);
    void (*combine)(const Combine<T>&);
    void (*matmul)(const Matmul<T, T>&);
    void (*matmul_to_float)(const Matmul<T, float>&);
    void (*rms_norm)(const RmsNorm<T>&);
    void (*rms_norm_backward)(const RmsNormBackward<T>&);
    void (*rope)(const Rope<T>&);
    void (*sum_rows)(const SumRows<T>&);
    void (*glu)(const Glu<T>&);
    void (*glu_backward)(const GluBackward<T>&);
    void (*largest_magnitudes)(const LargestMagnitudes<T>&);
    void (*cast_to_float8)(const CastToFloat8<T>&);
};

struct Table {
    const char* name;  // of the instruction set: portable, avx2, avx512, avx512_bf16, amx
    double (*squared_norm)(const SquaredNorm&);
    TypedKernels<float> fp32;
    TypedKernels<BFloat16> bf16;
    void (*adamw)(const AdamW&);
    void (*add_rounded)(const AddRounded&);
    void (*widen_float8)(const WidenFloat8&);

    template <class T>
    const TypedKernels<T>& of() const {
        if constexpr (std::is_same_v<T, float>) return fp32;
        if constexpr (std::is_same_v<T, BFloat16>) return bf16;
    }
};

/// Whether the tables give the same bits for a product of integers in bf16: a test of instructions that have
/// not run on this processor before.
bool multiply_alike(const Table& a, const Table& b);

/// The tables that this processor supports, the best last. AMX is left out, with a warning, if it does not
/// multiply like AVX512_BF16.
std::span<const Table* const> available_tables();

/// The best available table, or the table that ARGOSY_CPU_KERNELS names. Throws UserError if the processor
/// does not support the named table.
const Table& table();

}  // namespace argosy::kernels
