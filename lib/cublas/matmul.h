// Products of matrices on a GPU, by cuBLASLt. What calls it is in real/; a build without CUDA takes none/,
// where the version is 0 and everything else throws UserError. cuBLASLt's header is included in real/ alone.
//
// Products of bf16 and fp16 are summed in fp32, those of fp32 in fp32 (never TF32), those of fp64 in fp64,
// and what is stored is rounded once: parts of a sum that are computed apart are added up before that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/element_type.h"

struct CUstream_st;  // CUDA's own name of what a stream's handle points at

namespace argosy::cublas {

/// As cuBLAS counts, 130100 for 13.1.0; 0 where there is none.
int version();
/// "13.1.0".
std::string version_text();

/// A matrix in a device's memory: element [r, c] is number r * row_stride + c * column_stride from `data` on.
/// One stride is 1, and the other so large that no two elements share a place; of a single row or column its
/// stride does not count. So a transposed matrix is another view of the same memory, never a copy.
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

/// C = A B, or C += A B. A and B are of one floating-point type; C is of theirs too or, for bf16 and fp16, of
/// fp32, so that gradients of many microbatches add up unrounded. C shares no memory with A and B.
///
/// A bias's gradient is none of this: cuBLASLt can give it beside a weight's (CUBLASLT_EPILOGUE_BGRADB), but
/// it replaces what an earlier microbatch left, where the weight's gradient is added to.
struct Product {
    Matrix c;
    ConstMatrix a, b;
    bool accumulate = false;
    /// One element of C's type for each column of C, added to every row before it is rounded. REQUIRES: C's
    /// column_stride is 1, and the sum has terms (A has columns).
    const void* bias = nullptr;
};

/// How an algorithm is chosen when a problem (shapes, strides, types and how well the pointers are aligned)
/// comes for the first time. Heuristic: the one that cuBLASLt names first. Timed: the fastest of those that
/// it names, found by running them on the product's own factors. That waits for the stream, and wants scratch
/// memory of C's size where the product adds to C, whose values stay out of it.
enum class Search { Heuristic, Timed };

struct MultiplierOptions {
    Search search = Search::Heuristic;
    /// What algorithms may use; NVIDIA recommends as much for Hopper and Blackwell.
    size_t workspace_bytes = size_t{32} << 20;
    /// Where the workspace and a search's scratch memory come from: memory of this thread's device; it throws
    /// where there is none. Empty: CUDA's own allocator.
    std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate;
};

/// Owns cuBLASLt's handle, the workspace, and an algorithm for each problem that it met. It belongs to the
/// thread that makes it and to that thread's device: nobody else may call it. Products share the workspace,
/// so those on different streams must not run at the same time; a graph that holds one holds the workspace's
/// address, and lives no longer than this.
class Multiplier {
  public:
    explicit Multiplier(const MultiplierOptions& options = {});
    ~Multiplier();
    Multiplier(Multiplier&&) noexcept;
    Multiplier& operator=(Multiplier&&) noexcept;

    /// Puts the product on the stream; until the stream has done it, its matrices must stay. What a problem's
    /// algorithm is stays so, so that equal products have equal bits. While the stream is recorded into a
    /// graph nothing can be timed: a problem that comes first there takes the heuristic's algorithm, so where
    /// Search::Timed counts, let it come before. Throws RunError that names the product.
    void run(const Product& product, CUstream_st* stream);

    /// How many problems came so far.
    int num_problems() const;

    /// The algorithm of each problem so far, a line each, sorted, for remember() of another run: timing
    /// chooses differently from run to run, and other algorithms may round differently. Ranks that hold the
    /// same choices compute alike.
    std::string choices() const;

    /// Takes up what choices() gave, for problems that did not come yet. Lines of another version of cuBLASLt
    /// or another kind of device are left out. Returns how many lines were taken up; throws UserError for one
    /// that is none.
    int remember(std::string_view choices);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace argosy::cublas
