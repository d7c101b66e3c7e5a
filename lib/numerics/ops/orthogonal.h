// The orthogonal part of a matrix, as the Muon optimizer takes it of a momentum: with the singular value
// decomposition U S V^T of the matrix, about U V^T.
//
// Newton-Schulz steps, as torch.optim.Muon's: X = matrix / max(norm, 1e-7), then X = p(X X^T) X with
// p(A) = 3.4445 - 4.775 A + 2.0315 A^2. A step maps each singular value s to s p(s^2). Five steps map values
// from 0.002 to 1 to values from 0.68 to 1.21, and multiply smaller ones by up to 3.4445^5. More steps do not
// bring them closer to 1.
//
// Several ranks can share the products of one matrix X. Each has a slice X_t of X, cut along the long side:
// columns of a wide matrix, rows of a tall one. A step of a wide X:
//   1. A = X X^T is the sum of the products X_t X_t^T, in fp32 or wider. Each rank gets the sum of some rows
//      of A, rounds them, and gathers the others.
//   2. Each rank computes the same rows of C = b A + c A A, and gathers the others.
//   3. X_t = a X_t + C X_t, without communication.
// Each result is rounded once, as on one rank. n ranks take 1 / n of the time for the products.
//
// Cost: three products a step. Everything is computed in the matrix's type, with each product rounded once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// The ranks that have the slices of a matrix. The base class is one rank, whose slice is the whole matrix.
/// Every function is COLLECTIVE over the ranks and gives each of them the same bits for the same rows.
class SliceRanks {
  public:
    virtual ~SliceRanks() = default;
    virtual int count() const { return 1; }
    /// Sums over the ranks, in place.
    virtual void sum(const at::Tensor& /*values*/) const {}
    /// Returns this rank's n rows of the sum of `partial` [count n, m].
    virtual at::Tensor reduce_rows(const at::Tensor& partial) const { return partial; }
    /// Returns [count n, m]: the n rows of each rank.
    virtual at::Tensor gather_rows(const at::Tensor& own) const { return own; }
};

/// Returns the matrix after `steps` steps, contiguous, of the same shape and type: fp64, fp32 or bf16. A
/// matrix of zeros stays zero. Argosy's kernels give a wide matrix and its transpose the same bits.
at::Tensor orthogonalized(const at::Tensor& matrix, int steps);

/// Returns this rank's slice of orthogonalized(matrix). The matrix is cut along its dim `cut_dim`, which is
/// not the shorter one; a slice may be empty.
at::Tensor orthogonalized_slice(const at::Tensor& slice, int cut_dim, int steps, const SliceRanks& ranks);

/// FLOPs of orthogonalized(): 4 m^2 n + 2 m^3 for each step, where m is the smaller side.
double orthogonalization_flops(int64_t rows, int64_t columns, int steps);

}  // namespace argosy::ops
