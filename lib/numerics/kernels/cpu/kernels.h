// The kernels for processors, one function per kernel. kernels/variants.cmake compiles them once for each
// instruction set, each time in another namespace. table.cpp collects the functions of one instruction set.
#pragma once

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/float8.h"
#include "kernels/matmul.h"
#include "kernels/optimizer.h"
#include "kernels/rms_norm.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

void adamw(const AdamW& args);
void add_rounded(const AddRounded& args);

template <class T>
void attention(const Attention<T>& args);
template <class T>
void attention_backward(const AttentionBackward<T>& args);

template <class T>
void widen(const Widen<T>& args);
template <class T>
void narrow(const Narrow<T>& args);

template <class T>
void softmax_sums(const SoftmaxSums<T>& args);
template <class T>
void cross_entropy_gradient(const CrossEntropyGradient<T>& args);

template <class T>
void largest_magnitudes(const LargestMagnitudes<T>& args);
template <class T>
void cast_to_float8(const CastToFloat8<T>& args);
void widen_float8(const WidenFloat8& args);

template <class T>
void embedding(const Embedding<T>& args);
template <class T>
void embedding_gradient(const EmbeddingGradient<T>& args);
template <class T>
void combine(const Combine<T>& args);

template <class T, class Sum>
void matmul(const Matmul<T, Sum>& args);

template <class T>
void rms_norm(const RmsNorm<T>& args);
template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args);

template <class T>
void rope(const Rope<T>& args);

template <class T>
void sum_rows(const SumRows<T>& args);
double squared_norm(const SquaredNorm& args);

template <class T>
void glu(const Glu<T>& args);
template <class T>
void glu_backward(const GluBackward<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT
