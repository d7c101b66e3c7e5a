#include "ops/orthogonal.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "ops/matmul.h"
#include "ops/numerics.h"
#include "ops/sums.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

/// The slice divided by the matrix's Frobenius norm, which is rounded to the matrix's type. The sum of
/// squares is in fp64, so its order does not depend on the number of threads as that of LibTorch's norm does.
at::Tensor normalized(const at::Tensor& slice, const SliceRanks& ranks) {
    constexpr double kMinNorm = 1e-7;
    const at::Tensor dense = slice.contiguous(), square = squared_norms({&dense, 1});
    ranks.sum(square);
    const at::Tensor norm = square[0].sqrt().to(slice.scalar_type()).clamp_min_(kMinNorm);
    at::Tensor x = dense.is_same(slice) ? at::empty(slice.sizes(), slice.options()) : dense;
    note_pass({slice, x});
    return at::div_out(x, dense, norm);
}

/// Rounds to `type`, if the values have another one.
at::Tensor rounded(const at::Tensor& values, at::ScalarType type) {
    if (values.scalar_type() == type) return values;
    const at::Tensor result = values.to(type);
    note_pass({values, result});
    return result;
}

}  // namespace

at::Tensor orthogonalized(const at::Tensor& matrix, int steps) {
    return orthogonalized_slice(matrix, matrix.size(0) > matrix.size(1) ? 0 : 1, steps, SliceRanks());
}

at::Tensor orthogonalized_slice(const at::Tensor& slice, int cut_dim, int steps, const SliceRanks& ranks) {
    constexpr double kConstant = 3.4445, kLinear = -4.7750, kQuadratic = 2.0315;  // of p
    at::Tensor x = normalized(slice, ranks), next = at::empty(x.sizes(), x.options());
    // A tall X is the transpose of a wide one: X p(X^T X) is the transpose of p(X X^T) X, without a copy.
    const bool tall = cut_dim == 0;
    const at::ScalarType type = x.scalar_type();
    // Each rank has equally many rows of A and C; zeros follow the m rows.
    const int64_t m = x.size(1 - cut_dim), own_rows = divide_up(m, ranks.count());
    const int64_t num_rows = own_rows * ranks.count();
    const at::Tensor sums =
        at::empty({num_rows, m}, x.options().dtype(ranks.count() == 1 ? type : accumulation_type(type)));
    sums.narrow(0, m, num_rows - m).zero_();
    const at::Tensor own_polynomial = at::empty({own_rows, m}, x.options());
    for (int step = 0; step < steps; ++step) {
        // 1. A = X X^T
        const at::Tensor wide = tall ? x.t() : x;
        write_scaled_product(sums.narrow(0, 0, m), 1, wide, wide.t());
        const at::Tensor own_gram = rounded(ranks.reduce_rows(sums), type);
        const at::Tensor gram = ranks.gather_rows(own_gram).narrow(0, 0, m);
        // 2. C = b A + c A A
        write_scaled_product(own_polynomial, kQuadratic, own_gram, gram, kLinear, own_gram);
        const at::Tensor polynomial = ranks.gather_rows(own_polynomial).narrow(0, 0, m);
        // 3. X = a X + C X
        write_scaled_product(next, 1, tall ? x : polynomial, tall ? polynomial : x, kConstant, x);
        std::swap(x, next);
    }
    return x;
}

double orthogonalization_flops(int64_t rows, int64_t columns, int steps) {
    const auto m = static_cast<double>(std::min(rows, columns));
    const auto n = static_cast<double>(std::max(rows, columns));
    return steps * (4 * m * m * n + 2 * m * m * m);
}

}  // namespace argosy::ops
