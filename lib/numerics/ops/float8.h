// Matrices in float8 with scales, and how the products of a linear layer cast their operands to them. An
// element times its scale is the number that it stands for.
//
// All casts round to nearest, ties to even; numbers that are too large become the format's largest. Products
// (ops/matmul.h) of float8 matrices are exact, their sums are in fp32, and the result is rounded once. On a
// GPU sums are as cuBLASLt computes them (cublas/matmul.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace argosy::ops {

constexpr bool is_float8(at::ScalarType type) {
    return type == at::ScalarType::Float8_e4m3fn || type == at::ScalarType::Float8_e5m2;
}

/// The elements of an operand that share a scale. A line has the elements that a product sums over.
enum class Scaling {
    None,    // not cast
    Matrix,  // all
    Line,
    Block,  // Cast::block_size elements of a line, or a square of them; the scale is a power of two
};

/// The dim of a matrix over which a product sums: y = x W^T sums over the columns of x and W, dx = dy W over
/// the columns of dy and the rows of W, dW = dy^T x over the rows of dy and x.
enum class SumOver {
    Rows,
    Columns,
    Either,  // one cast serves both kinds of products. REQUIRES: Scaling::Matrix
};

/// How the scale of a block follows from its largest magnitude.
enum class BlockScale {
    Floor,  // 2^floor(log2(largest)) / 2^8: the largest elements may become the format's largest
    Ceil,   // the smallest power of two with which no element is too large
};

struct Cast {
    at::ScalarType type = at::ScalarType::Float8_e4m3fn;
    Scaling scaling = Scaling::None;
    bool power_of_two = false;  // Matrix, Line: the scale is rounded up to a power of two
    BlockScale block_scale = BlockScale::Floor;
    int64_t block_size = 32;     // of MXFP8
    bool square_blocks = false;  // block_size lines share a scale, which serves products over either dim

    bool operator==(const Cast&) const = default;
};

/// How products of float8 matrices are computed, and so how they are summed.
enum class Accumulation {
    Native,   // by a GPU that multiplies float8; emulated as Float32 where there is none
    Float32,  // emulated on every device
};

/// The casts of a linear layer's three products. Both operands of a product are cast, or neither.
struct Recipe {
    struct Product {
        Cast left, right;
    };
    Product forward;          // y = x W^T
    Product input_gradient;   // dx = dy W
    Product weight_gradient;  // dW = dy^T x
    Accumulation accumulation = Accumulation::Native;

    /// Whether one cast of dy, or of x, serves both of its products: its one scale does not depend on the
    /// summed dim.
    bool shares_dy() const { return shares(input_gradient.left, weight_gradient.left); }
    bool shares_x() const { return shares(forward.left, weight_gradient.right); }
    bool has_blocks() const { return forward.left.scaling == Scaling::Block; }

  private:
    static bool shares(const Cast& a, const Cast& b) { return a == b && a.scaling == Scaling::Matrix; }
};
inline constexpr Recipe kNoCasts{};

/// The recipes as TorchTitan names them: tensorwise, rowwise, rowwise_with_gw_hp, mxfp8_cublas,
/// mxfp8_cublas_rceil; and blockwise, that of DeepSeek-V3: E4M3 in blocks of 128 elements, of weights 128 x
/// 128, with scales as DeepSeek-V3.1 has them, rounded up to powers of two. V3's own are numbers of fp32.
/// Null for another name.
const Recipe* find_recipe(std::string_view name, Accumulation accumulation = Accumulation::Native);

/// An operand of a product: a matrix, with its scales if it was cast to float8.
struct Operand {
    at::Tensor values;
    /// fp32: [1, 1], or one for each line, [rows, 1] or [1, columns]. Blocks: float8_e8m0, with the shape of
    /// values but for the summed dim, which has 1 / block_size of the size, as both dims have for
    /// square blocks. Undefined: the values are the numbers.
    at::Tensor scale;
    /// The type of the matrix that was cast, and so of the product. Without scales that of the values.
    at::ScalarType type = at::ScalarType::Undefined;
    /// The values again, column-major where `values` is row-major, for a GPU's products over the other dim.
    /// Undefined: such a product makes them.
    at::Tensor other_order;
    /// Each row has a scale of its own; that of a single row has the shape of a matrix's scale.
    bool scaled_by_rows = false;

    Operand() = default;
    Operand(const at::Tensor& matrix);  // NOLINT: a matrix is an operand
    Operand(at::Tensor cast_values, at::Tensor scales, at::ScalarType original_type,
            at::Tensor values_again = {})
        : values(std::move(cast_values)),
          scale(std::move(scales)),
          type(original_type),
          other_order(std::move(values_again)) {}

    bool defined() const { return values.defined(); }
    bool scaled() const { return scale.defined(); }
    /// Some rows or columns. REQUIRES: they begin and end at the bounds of blocks.
    Operand narrow(int dim, int64_t begin, int64_t count) const;
    Operand transposed() const {
        const auto turned = [](const at::Tensor& x) { return x.defined() ? x.t() : x; };
        return {values.t(), turned(scale), type, turned(other_order)};
    }
    /// Frees what products that sum over columns read, if `other_order` serves those over rows.
    void keep_for_sums_over_rows() {
        if (other_order.defined()) values = std::exchange(other_order, {});
    }
};

/// Whether a product may sum over `size` elements that are cast so.
bool divides(const Cast& cast, int64_t size);

/// The largest magnitude of all elements: fp32 [1, 1]. NaN if there is a NaN.
at::Tensor largest_magnitude(const at::Tensor& x);

/// x as communicators move it: types of eight bits as bytes.
at::Tensor for_transfer(const at::Tensor& x);

/// Casts x for products that sum over its dim `summed`. Returns x itself if it is cast already, or if the
/// scaling is None. `largest` is for Scaling::Matrix: a number that is at least largest_magnitude(x).
Operand cast(const Operand& x, const Cast& cast, SumOver summed, const at::Tensor& largest = {});

/// Casts x with one scale into the values and the scale of `kept`. REQUIRES: Scaling::Matrix; the values are
/// contiguous and have the cast's type.
void cast_into(const Operand& kept, const at::Tensor& x, const Cast& cast, const at::Tensor& largest);

/// The matrix of an operand in float8 as bf16, without its scales for the matrix or for lines. A number of
/// float8 is a number of bf16, also with the scale of a block unless that is below 2^-117.
at::Tensor widened_to_bf16(const Operand& operand);

}  // namespace argosy::ops
