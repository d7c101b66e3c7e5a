// Matrix products of a linear layer y = x W^T, with a function for each gradient. Shapes: x [tokens, in],
// W [out, in], y [tokens, out]; any strides.
//
// On a processor, Argosy's kernels sum in fp32 and round once. The bits of an element of the result do not
// depend on the other rows and columns or on the number of threads, so a token has the same y in every batch.
// On a GPU, a sum of several products is rounded after each product.
//
// A bias and then an addend are added before that rounding, except by LibTorch's operations on the plain
// path.
//
// If the operands are in float8 (ops/float8.h), both are. A GPU multiplies in float8 where it can
// (ops/gpu_float8.h), with sums in fewer bits on Hopper.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "ops/float8.h"

namespace argosy::ops {

/// The weights, or the biases, of several layers that read the same x. The layers' outputs are adjacent
/// columns of one matrix. If the parts are adjacent in memory, `all` is a view of all of them, and one
/// product computes all layers; else `all` is undefined.
struct Stack {
    std::vector<at::Tensor> parts = {};  // empty for the biases of layers without biases
    Operand all = {};                    // in float8 without parts
    const Recipe* recipe = &kNoCasts;    // how products cast the operands
    const char* name = "";               // of the layers, for plans: "wq, wk, wv"

    /// One layer, or none if `weight` is undefined.
    static Stack of(const at::Tensor& weight, const Recipe& recipe = kNoCasts);
    /// The same in float8, for products that sum over its dim `summed`; the stack itself if `cast` is none.
    /// `largest` as in ops::cast().
    Stack cast(const Cast& cast, SumOver summed, const at::Tensor& largest = {}) const;
    /// All parts as one matrix, a copy if they are not adjacent.
    at::Tensor whole() const;
    int64_t num_rows() const;
    int64_t num_columns() const;
};

/// y = x W^T + bias; `bias` is [out] or undefined.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
at::Tensor linear(const Operand& x, const Stack& weight, const Stack& bias = {});

/// Writes linear(x, weight, bias) to `y`, whose rows are dense.
void write_linear(const at::Tensor& y, const Operand& x, const Stack& weight, const Stack& bias);

/// y = addend + x W^T + bias. `addend` is [tokens, out]; `bias` is [out] or undefined. If there are kernels
/// for x, the sum is rounded once.
at::Tensor add_linear(const at::Tensor& addend, const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias = {});
/// The same. REQUIRES: the stack has one layer.
at::Tensor add_linear(const at::Tensor& addend, const Operand& x, const Stack& weight,
                      const at::Tensor& bias = {});

/// Returns the gradient of x: dy W.
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight);

/// Returns the gradient of an x that several layers read. On a processor the bits do not depend on whether
/// the parts are adjacent.
at::Tensor linear_input_gradient(const Operand& dy, const Stack& weight);

/// Writes linear_input_gradient(dy, weight) to `out`, whose rows are dense.
void write_linear_input_gradient(const at::Tensor& out, const Operand& dy, const Stack& weight);

/// out = dy^T x, or out += dy^T x with `accumulate`. `out` may have a wider type than the operands.
/// `accumulation` is that of the layer's recipe.
void linear_weight_gradient(at::Tensor& out, const Operand& dy, const Operand& x, bool accumulate,
                            Accumulation accumulation = Accumulation::Native);

/// out = factor a b + addend_factor addend, as torch.addmm(). If there are kernels for a, the result is
/// rounded once. `out` is contiguous, of the type of a and b or fp32 for bf16, and shares no memory with
/// them. `addend` is undefined, `out` itself, or another matrix of out's shape and type, and is not read if
/// its factor is 0.
void write_scaled_product(const at::Tensor& out, double factor, const at::Tensor& a, const at::Tensor& b,
                          double addend_factor = 0, const at::Tensor& addend = {});

/// out = a b, in fp32. For operands in bf16 that stand for float8 (ops/gpu_float8.h).
void write_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

/// How the threads of a processor divide a product: the result is cut into a grid of equal blocks, one for
/// each thread. A thread packs its rows of A and its columns of B, so a block that is nearly square packs
/// least for its products.
struct ProductGrid {
    int64_t rows, columns;              // of the result
    int64_t block_rows, block_columns;  // of a block; the last ones may be smaller

    int64_t blocks_along_rows() const { return divide_up(rows, block_rows); }
    int64_t blocks_along_columns() const { return divide_up(columns, block_columns); }
    int64_t num_blocks() const { return blocks_along_rows() * blocks_along_columns(); }
};

/// The grid with which the slowest of `num_threads` threads takes least time. `k` is the number of terms of a
/// sum. Small products get fewer blocks than there are threads: a block takes at least about 50 us.
ProductGrid divide_product(int64_t rows, int64_t columns, int64_t k, int num_threads);

}  // namespace argosy::ops
