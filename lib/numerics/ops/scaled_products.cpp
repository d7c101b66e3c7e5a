#include "ops/scaled_products.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/gpu_float8.h"
#include "ops/matmul.h"
#include "ops/work.h"

namespace argosy::ops {

void apply_scales(const at::Tensor& sum, const Operand& a, const Operand& b) {
    const auto apply = [&](const at::Tensor& scale) {
        note_pass({sum, sum});
        at::Tensor(sum).mul_(scale);
    };
    if (a.scale.scalar_type() != at::kFloat) return;
    if (a.scale.numel() == 1 && b.scale.numel() == 1) return apply(a.scale * b.scale);
    apply(a.scale);
    apply(b.scale);
}

void multiply_scaled(const at::Tensor& out, const Operand& a, const Operand& b, Summing summing,
                     const at::Tensor& addend, const at::Tensor& bias) {
    ARGOSY_CHECK(a.scaled() && b.scaled(), "a product of which one operand is in float8");
    if (summing.accumulation == Accumulation::Native &&
        multiply_in_float8({out, a, b, addend, bias, summing.fast})) {
        return;
    }
    const at::Tensor sum = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    write_product(sum, widened_to_bf16(a), widened_to_bf16(b));
    apply_scales(sum, a, b);
    if (bias.defined()) sum.add_(bias);
    if (addend.defined()) {
        note_pass({sum, sum, addend});
        sum.add_(addend);
    }
    note_pass({sum, out});
    out.copy_(sum);
}

}  // namespace argosy::ops
