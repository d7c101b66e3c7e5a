#include "float8/planted_casts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "ops/matmul.h"

#define REAL(symbol) __asm__("__real_" symbol)
#define WRAPPED(symbol) __asm__("__wrap_" symbol)
#define CAST "_ZN6argosy3ops4castERKNS0_7OperandERKNS0_4CastENS0_7SumOverERKN2at6TensorE"
#define STACK_CAST "_ZNK6argosy3ops5Stack4castERKNS0_4CastENS0_7SumOverERKN2at6TensorE"

namespace argosy::testing {

using ops::Cast, ops::Operand, ops::Stack, ops::SumOver;
Operand real_cast(const Operand& x, const Cast& how, SumOver summed, const at::Tensor& largest) REAL(CAST);
Operand planted_cast(const Operand& x, const Cast& how, SumOver summed, const at::Tensor& largest)
    WRAPPED(CAST);
Stack planted_stack(const Stack* stack, const Cast& how, SumOver summed, const at::Tensor& largest)
    WRAPPED(STACK_CAST);

namespace {

constinit WrongScale wrong = WrongScale::None;
at::Tensor first_scale;  // fp32 [1, 1]

/// The scale for x that the fault asks for, of the kind that ops::cast() gives, or of one element.
at::Tensor wrong_scale(const Operand& x, const Cast& how, SumOver summed, const at::Tensor& largest) {
    switch (wrong) {
        case WrongScale::Right:
            return real_cast(x, how, summed, largest).scale;
        case WrongScale::Stale:
            return real_cast(x.values * 0.25, how, summed, largest.defined() ? largest * 0.25 : largest)
                .scale;
        case WrongScale::Other:
            if (!first_scale.defined()) {
                const at::Tensor own = real_cast(x, how, summed, largest).scale;
                first_scale = own.to(at::kFloat).max().view({1, 1});
            }
            return first_scale;
        default:
            return at::ones({1, 1}, x.values.options().dtype(at::kFloat));
    }
}

/// One element for each of x.
at::Tensor for_elements(at::Tensor scale, const at::Tensor& x) {
    scale = scale.to(at::kFloat);
    for (const int dim : {0, 1}) {
        if (scale.size(dim) > 1) scale = scale.repeat_interleave(x.size(dim) / scale.size(dim), dim);
    }
    return scale;
}

}  // namespace

void plant(WrongScale scale) {
    wrong = scale;
    first_scale = at::Tensor();
}

Operand planted_cast(const Operand& x, const Cast& how, SumOver summed, const at::Tensor& largest) {
    const bool casts = how.scaling != ops::Scaling::None && !x.scaled() && !x.values.is_meta();
    if (wrong == WrongScale::None || !casts) return real_cast(x, how, summed, largest);
    const at::Tensor scale = wrong_scale(x, how, summed, largest);
    const double largest_number = how.type == at::ScalarType::Float8_e4m3fn ? 448 : 57344;
    const at::Tensor scaled = x.values.to(at::kFloat) / for_elements(scale, x.values);
    return {scaled.clamp(-largest_number, largest_number).to(how.type), scale, x.type};
}

Stack planted_stack(const Stack* stack, const Cast& how, SumOver summed, const at::Tensor& largest) {
    if (how.scaling == ops::Scaling::None || stack->all.scaled()) return *stack;
    return {{}, planted_cast(stack->whole(), how, summed, largest), stack->recipe};
}

}  // namespace argosy::testing
