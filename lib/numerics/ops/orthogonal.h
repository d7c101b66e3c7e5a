// The orthogonal part of a matrix, as the Muon optimizer takes it of a momentum: with the singular value
// decomposition U S V^T of the matrix, about U V^T.
//
// Newton-Schulz steps, as torch.optim.Muon's: X = matrix / max(norm, 1e-7), then X = p(X X^T) X with
// p(A) = 3.4445 - 4.775 A + 2.0315 A^2. A step maps each singular value s to s p(s^2). Five steps map values
// from 0.002 to 1 to values from 0.68 to 1.21, and multiply smaller ones by up to 3.4445^5. More steps do not
// bring them closer to 1.
//
// Cost: three products a step. Everything is computed in the matrix's type, with each product rounded once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// Returns the matrix after `steps` steps, contiguous, of the same shape and type: fp64, fp32 or bf16. A
/// matrix of zeros stays zero. Argosy's kernels give a wide matrix and its transpose the same bits.
at::Tensor orthogonalized(const at::Tensor& matrix, int steps);

/// FLOPs of orthogonalized(): 4 m^2 n + 2 m^3 for each step, where m is the smaller side.
double orthogonalization_flops(int64_t rows, int64_t columns, int steps);

}  // namespace argosy::ops
