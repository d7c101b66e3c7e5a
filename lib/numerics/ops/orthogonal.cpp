#include "ops/orthogonal.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "ops/matmul.h"
#include "ops/sums.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

/// The matrix divided by its Frobenius norm, which is rounded to the matrix's type. The sum of squares is in
/// fp64, so its order does not depend on the number of threads as that of LibTorch's norm does.
at::Tensor normalized(const at::Tensor& matrix) {
    constexpr double kMinNorm = 1e-7;
    const at::Tensor dense = matrix.contiguous();
    const at::Tensor norm =
        squared_norms({&dense, 1})[0].sqrt().to(matrix.scalar_type()).clamp_min_(kMinNorm);
    at::Tensor x = dense.is_same(matrix) ? at::empty(matrix.sizes(), matrix.options()) : dense;
    note_pass({matrix, x});
    return at::div_out(x, dense, norm);
}

}  // namespace

at::Tensor orthogonalized(const at::Tensor& matrix, int steps) {
    constexpr double kConstant = 3.4445, kLinear = -4.7750, kQuadratic = 2.0315;  // of p
    const int64_t rows = matrix.size(0), columns = matrix.size(1), m = std::min(rows, columns);
    at::Tensor x = normalized(matrix), next = at::empty(x.sizes(), x.options());
    const at::Tensor gram = at::empty({m, m}, x.options()), polynomial = at::empty({m, m}, x.options());
    // A tall X is the transpose of a wide one: X p(X^T X) is the transpose of p(X X^T) X, without a copy.
    const bool tall = rows > columns;
    for (int step = 0; step < steps; ++step) {
        // 1. A = X X^T
        const at::Tensor wide = tall ? x.t() : x;
        write_scaled_product(gram, 1, wide, wide.t());
        // 2. C = b A + c A A
        write_scaled_product(polynomial, kQuadratic, gram, gram, kLinear, gram);
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
