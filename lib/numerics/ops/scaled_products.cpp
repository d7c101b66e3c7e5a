#include "ops/scaled_products.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "gpu/device.h"
#include "ops/gpu_float8.h"
#include "ops/kernel_calls.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

/// sum = the product of two operands without their scales, with the sums of a Hopper GPU.
void multiply_as_hopper(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool fast) {
    ARGOSY_CHECK(!gpu::holds(sum) && path() != Path::Plain,
                 "sums of Hopper are emulated by Argosy's kernels for processors only");
    note_product(sum, sum, a.size(1));
    const kernels::HopperMatmul whole{
        .a = {{first_element<uint8_t>(a), a.stride(0), a.stride(1)}, float8_type(a)},
        .b = {{first_element<uint8_t>(b), b.stride(1), b.stride(0)}, float8_type(b)},
        .k = a.size(1),
        .row_begin = 0,
        .row_end = sum.size(0),
        .column_begin = 0,
        .column_end = sum.size(1),
        .c = mutable_first_element<float>(sum),
        .c_stride = sum.stride(0),
        .fast = fast};
    run_on_parts(sum, whole.row_end, /*min_per_thread=*/16, [&](int64_t begin, int64_t end) {
        kernels::HopperMatmul part = whole;
        part.row_begin = begin;
        part.row_end = end;
        kernels::table().hopper_matmul(part);
    });
}

/// The scales of a block of terms, one for each row: fp32 [rows, 1].
at::Tensor scales_of_block(const Operand& x, int64_t block) {
    const at::Tensor scales = x.scale.narrow(1, block, 1).to(at::kFloat);
    return scales.repeat_interleave(x.values.size(0) / scales.size(0), 0);
}

/// sum = the product of operands in blocks. The sum of each block is scaled, and added in fp32.
void multiply_blocks_as_hopper(const at::Tensor& sum, const Operand& a, const Operand& b) {
    const int64_t num_blocks = a.scale.size(1), terms = a.values.size(1) / num_blocks;
    const at::Tensor of_block = at::empty(sum.sizes(), sum.options());
    sum.zero_();
    for (int64_t i = 0; i < num_blocks; ++i) {
        multiply_as_hopper(of_block, a.values.narrow(1, i * terms, terms),
                           b.values.narrow(0, i * terms, terms), /*fast=*/false);
        of_block.mul_(scales_of_block(a, i)).mul_(scales_of_block(b.transposed(), i).t());
        sum.add_(of_block);
    }
}

}  // namespace

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
    if (summing.accumulation == Accumulation::Hopper && a.scale.scalar_type() != at::kFloat) {
        multiply_blocks_as_hopper(sum, a, b);
    } else if (summing.accumulation == Accumulation::Hopper) {
        multiply_as_hopper(sum, a.values, b.values, summing.fast);
    } else {
        write_product(sum, widened_to_bf16(a), widened_to_bf16(b));
    }
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
