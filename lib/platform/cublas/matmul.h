// Matrix products on a GPU with cuBLASLt. A Multiplier runs them for the one thread that owns it. with_cuda/
// has the implementation and alone includes cuBLASLt's header. A build without CUDA takes without_cuda/,
// where version() is 0 and the constructor of Multiplier throws UserError.
//
// Products of bf16 and fp32 are summed in fp32 (never TF32), products of fp64 in fp64, products of
// float8 as Product says. The result is rounded once: parts of a sum that are computed separately are added
// up before the rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/element_type.h"
#include "base/error.h"

struct CUstream_st;  // CUDA's name for what a cudaStream_t points to

namespace argosy::cublas {

/// cuBLAS's version number: 130100 for 13.1.0; 0 in a build without cuBLASLt.
int version();
/// "13.1.0".
std::string version_text();

/// A device's compute capability, 90 for 9.0, and cuBLASLt's version decide which products there are.
struct Target {
    int capability = 0;  // 0: no GPU
    int version = 0;

    bool multiplies_float8() const { return capability >= 89; }
    /// Whether A and B of a float8 product without scales of lines or blocks may be row-major or
    /// column-major. Otherwise the elements of a line are adjacent: cuBLASLt's documentation requires that of
    /// Ada, Hopper and GeForce's Blackwell (12.x).
    bool reads_float8_in_either_order() const { return capability >= 100 && capability < 120; }
};

/// How many elements of a float8 operand share a scale. A line has the elements that a product sums over: a
/// row of A, a column of B.
enum class ScaleMode {
    None,    // the operand is not in float8, or its scale is 1
    Matrix,  // one fp32 number
    Line,    // an fp32 number for each line
    Block,  // an E8M0 exponent for 32 elements of a line, in tiles of 128 lines x 4 blocks: block b of line l
            // is byte (l % 32) * 16 + l / 32 * 4 + b of its tile; tiles lie row by row, padded with zeros
    Block128,  // an fp32 number for 128 elements of a line: block b of line l is number b * lines + l
    SquareA,   // B as Block128; of A, an fp32 number for 128 elements of 128 lines: block b of lines 128 s to
               // 128 s + 127 is number s * n + b, where n is the number of blocks, rounded up to 4
    SquareB,   // A as Block128, B with squares
};
inline bool has_blocks_of_128(ScaleMode mode) { return mode >= ScaleMode::Block128; }

/// Bytes that divide the addresses and strides of a float8 product's matrices.
inline constexpr int64_t kFloat8Alignment = 16;

/// A float8 product C [rows, columns] of sums of `terms` products: all on which it depends whether cuBLASLt
/// has it.
struct Float8Product {
    ElementType a, b, c;
    ScaleMode scales;  // of both operands
    int64_t columns, terms;
    int64_t rows = 0;  // 0: not known
};

/// Why cuBLASLt lacks the product on this target, to follow "because"; empty if it has it.
std::string refusal(const Float8Product& product, const Target& target);

/// A matrix in device memory. Element [r, c] is data[r * row_stride + c * column_stride], in elements of
/// `type`. One stride is 1, and the other is so large that no two elements overlap. The stride of a dim of
/// size 1 is ignored. A transposed matrix is another view of the same memory, never a copy.
template <class Data>
struct MatrixOf {
    Data* data;
    ElementType type;
    int64_t rows, columns;
    int64_t row_stride, column_stride;

    MatrixOf transposed() const { return {data, type, columns, rows, column_stride, row_stride}; }
};
using Matrix = MatrixOf<void>;
using ConstMatrix = MatrixOf<const void>;

/// C = factor A B, plus a bias and addend_factor times a matrix if given, rounded once. A and B have the same
/// type: bf16, fp32 or fp64.
/// C has that type too, or fp32 if the type is bf16, so that gradients of many microbatches add up unrounded.
/// C shares no memory with A and B.
///
/// A product in float8 has A and B in float8, not both in E5M2, and C in bf16 or fp32. refusal() says which
/// of these products a target has. REQUIRES for float8: the elements of a line are adjacent, that is, A is
/// row-major and B is column-major, or the target reads either order and 16 divides the lines of a matrix in
/// the other order; matrices begin, and their rows or columns too, at multiples of 16 bytes; a bias is for a
/// C in bf16.
///
/// A bias's gradient is not supported: cuBLASLt can compute it with a weight's gradient
/// (CUBLASLT_EPILOGUE_BGRADB), but overwrites the sum of earlier microbatches instead of adding to it.
struct Product {
    Matrix c;
    ConstMatrix a, b;
    /// A matrix with C's shape, type and strides: C itself (C += A B), or one that shares no memory with C.
    /// Null: none.
    const void* addend = nullptr;
    /// One element of C's type for each column of C, added to every row before the row is rounded. REQUIRES:
    /// C's column_stride is 1, and A has at least one column.
    const void* bias = nullptr;
    /// REQUIRES: addend_factor is 1 if A has no columns.
    double factor = 1, addend_factor = 1;
    /// Float8 operands A and B are multiplied by their scales, which are in device memory and may be null
    /// for ScaleMode::None.
    ScaleMode scales = ScaleMode::None;
    const void *scale_a = nullptr, *scale_b = nullptr;
    /// Float8 on Hopper: whether tensor cores may keep sums in fewer than fp32's bits, which is faster.
    /// cuBLASLt has no such sums of blocks of 128.
    bool fast_sums = false;
    /// The multiprocessors for which cuBLASLt chooses an algorithm, beside collectives that hold the others
    /// (CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET; untried); 0: all.
    int max_multiprocessors = 0;
};

struct MultiplierOptions {
    /// Maximum workspace of an algorithm; NVIDIA recommends 32 MiB for Hopper and Blackwell.
    size_t workspace_bytes = size_t{32} << 20;
    /// The place of a problem's algorithm among those that cuBLASLt's heuristic names: 0 is the first, which
    /// training takes. tests/gpu/gemm_speed.cpp measures the others.
    int choice = 0;
    /// Allocates the workspace on this thread's device; throws if there is too little memory. Empty: CUDA's
    /// own allocator.
    std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate;
};

/// cuBLASLt's heuristic names no algorithm for a problem, or none with the number `choice`.
struct NoAlgorithm : RunError {
    using RunError::RunError;
};

/// Owns cuBLASLt's handle, the workspace, and the algorithm of each problem seen so far. A Multiplier belongs
/// to the thread that makes it and to that thread's device: no other thread may call it. Products share one
/// workspace, so products on different streams must not run at the same time. A graph that recorded a product
/// uses the workspace's address, so the graph must not outlive the Multiplier.
class Multiplier {
  public:
    explicit Multiplier(const MultiplierOptions& options = {});
    ~Multiplier();
    Multiplier(Multiplier&&) noexcept;
    Multiplier& operator=(Multiplier&&) noexcept;

    /// Queues the product on the stream and returns at once. The product's matrices must stay valid until the
    /// stream has done the product. A problem (shapes, strides, types and alignments of the pointers) keeps
    /// the algorithm at the place `choice` of cuBLASLt's heuristic, so equal products have equal bits. Throws
    /// RunError that names the product, NoAlgorithm if cuBLASLt has none.
    void run(const Product& product, CUstream_st* stream);

    /// The same for a product that may be computed in another way: returns false if cuBLASLt finds no
    /// algorithm, of which the first product of a problem warns.
    [[nodiscard]] bool try_run(const Product& product, CUstream_st* stream);

    Target target() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace argosy::cublas
