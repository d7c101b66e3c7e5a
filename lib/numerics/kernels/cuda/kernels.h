// The kernels for GPUs, one function for each. gpu_table.cpp collects the functions in a table;
// kernels/gpu_table.h has the contract of all kernels.
#pragma once

#include <span>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/float8.h"
#include "kernels/optimizer.h"
#include "kernels/rms_norm.h"
#include "kernels/routing.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

void adamw(std::span<const AdamWRows> tensors, GpuStream stream);
void add_rounded(const AddRoundedRows& rows, GpuStream stream);

template <class T>
void widen(const Widen<T>& args, GpuStream stream);
template <class T>
void narrow(const Narrow<T>& args, GpuStream stream);

template <class T>
void softmax_sums(const SoftmaxSums<T>& args, GpuStream stream);
template <class T>
void cross_entropy_gradient(const CrossEntropyGradient<T>& args, GpuStream stream);
template <class T>
void cross_entropy(const CrossEntropy<T>& args, GpuStream stream);

template <class T>
void embedding(const Embedding<T>& args, GpuStream stream);
template <class T>
void embedding_gradient(const EmbeddingGradient<T>& args, const int64_t* positions, GpuStream stream);

template <class T>
void largest_scores(const LargestScores<T>& args, GpuStream stream);

template <class T>
void largest_magnitudes(const LargestMagnitudes<T>& args, GpuStream stream);
template <class T>
void cast_to_float8(const CastToFloat8<T>& args, const TransposedFloat8& transposed, GpuStream stream);
template <class T>
void cast_blocks(const CastBlocks<T>& args, const TransposedFloat8& transposed, GpuStream stream);
void transpose_bytes(const TransposeBytes& args, GpuStream stream);
void float8_scales(const Float8Scales& args, GpuStream stream);

template <class T>
void rms_norm(const RmsNorm<T>& args, GpuStream stream, float* largest);

template <class T>
int64_t rms_norm_backward_scratch_bytes(const RmsNormBackward<T>& args);
template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args, void* scratch, GpuStream stream);

template <class T>
void rope(const Rope<T>& args, GpuStream stream);

int64_t squared_norms_scratch_bytes(std::span<const SquaredNorm> tensors);
void squared_norms(std::span<const SquaredNorm> tensors, double* norms, void* scratch, GpuStream stream);

// sum_rows() takes a second launch if it splits the rows over several blocks: the blocks write the sums of
// their rows to the scratch memory, and the second launch adds these sums in order.
template <class T>
int64_t sum_rows_scratch_bytes(const SumRows<T>& args);
template <class T>
void sum_rows(const SumRows<T>& args, void* scratch, GpuStream stream);

/// sums[i] += partial[row][i] for each row in order. The kernel suits a small number of rows of any length.
void add_partial_rows(const float* partial, int64_t num_rows, int64_t row_size, float* sums,
                      GpuStream stream);

template <class T>
void glu(const Glu<T>& args, GpuStream stream, float* largest);
template <class T>
void glu_backward(const GluBackward<T>& args, GpuStream stream, float* largest);

void route(const Route& args, GpuStream stream);
void route_backward(const RouteBackward& args, GpuStream stream);
int64_t sort_slots_scratch_bytes(const SortSlots& args);
void sort_slots(const SortSlots& args, void* scratch, GpuStream stream);
void invert_order(const InvertOrder& args, GpuStream stream);
template <class T>
void combine(const Combine<T>& args, GpuStream stream);

}  // namespace argosy::kernels::cuda
