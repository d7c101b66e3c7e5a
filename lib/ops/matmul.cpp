#include "ops/matmul.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

#include "ops/gpu_matmul.h"
#include "ops/own_kernels.h"

namespace argosy::ops {
namespace {

// But on the plain path every product of bf16, fp16 and fp32 is an own kernel. One thread, 512 to 2048
// tokens, dims 512 to 8192, GFLOP/s, ours against at::mm: on a Zen 3 (AVX2) bf16 74-89 against 10, fp32 83-88
// against 78-90; on a Zen 5 (AVX512_BF16) bf16 forward 450-490 against 470-485, weight gradients 410-460 into
// fp32 against 440-470 into bf16. And parts are bit for bit those of the whole. With AMX nothing has been
// measured. On a GPU they are cuBLASLt's.

/// Of one product: a [rows, k], b [k, columns].
struct Factors {
    at::Tensor a, b;
};

template <class T>
kernels::Product<T> product(const Factors& factors) {
    const at::Tensor &a = factors.a, &b = factors.b;
    ARGOSY_CHECK(a.size(1) == b.size(0), "a product of {} columns with {} rows", a.size(1), b.size(0));
    ARGOSY_CHECK(a.scalar_type() == b.scalar_type(), "a product of unequal types");
    return {{static_cast<const T*>(a.const_data_ptr()), a.stride(0), a.stride(1)},
            {static_cast<const T*>(b.const_data_ptr()), b.stride(1), b.stride(0)},
            a.size(1)};
}

/// Cuts the longer dim of C over the threads. One thread's share takes at least about 50 us.
template <class T, class Sum>
void run_on_threads(void (*kernel)(const kernels::Matmul<T, Sum>&), const kernels::Matmul<T, Sum>& whole) {
    constexpr double kLeastFlops = 4e6;
    const int64_t rows = whole.row_end, columns = whole.column_end;
    double flops_of_element = 2;
    for (int64_t i = 0; i < whole.num_products; ++i) flops_of_element += 2.0 * whole.products[i].k;
    const auto shorter = static_cast<double>(std::min(rows, columns));
    const auto grain = static_cast<int64_t>(kLeastFlops / flops_of_element / (shorter + 1)) + 1;
    at::parallel_for(0, std::max(rows, columns), grain, [&](int64_t begin, int64_t end) {
        kernels::Matmul<T, Sum> part = whole;
        (rows >= columns ? part.row_begin : part.column_begin) = begin;
        (rows >= columns ? part.row_end : part.column_end) = end;
        kernel(part);
    });
}

/// The sum is rounded to out's type after each product.
void multiply_on_gpu(const at::Tensor& out, std::span<const Factors> factors, bool accumulate) {
    for (const auto& [a, b] : factors) {
        gpu_multiply(out, a, b, accumulate);
        accumulate = true;
    }
}

/// out = the sum of the products, or out += that.
void multiply(const at::Tensor& out, std::span<const Factors> factors, bool accumulate) {
    if (gpu::holds(out)) return multiply_on_gpu(out, factors, accumulate);
    with_element_type(factors[0].a.scalar_type(), [&]<class T>(T) {
        std::vector<kernels::Product<T>> products;
        for (const Factors& one : factors) {
            ARGOSY_CHECK(one.a.size(0) == out.size(0) && one.b.size(1) == out.size(1),
                         "a product of another size");
            ARGOSY_CHECK(one.a.scalar_type() == factors[0].a.scalar_type(),
                         "a sum of products of unequal types");
            products.push_back(product<T>(one));
        }
        const auto arguments = [&]<class Sum>(Sum) {
            return kernels::Matmul<T, Sum>{.products = products.data(),
                                           .num_products = std::ssize(products),
                                           .row_begin = 0,
                                           .row_end = out.size(0),
                                           .column_begin = 0,
                                           .column_end = out.size(1),
                                           .c = static_cast<Sum*>(out.mutable_data_ptr()),
                                           .c_stride = out.stride(0),
                                           .accumulate = accumulate};
        };
        const kernels::Typed<T>& kernels_of_type = kernels::table().of<T>();
        if (out.scalar_type() == at::kFloat) {
            run_on_threads(kernels_of_type.matmul_to_float, arguments(float{}));
        } else {
            run_on_threads(kernels_of_type.matmul, arguments(T{}));
        }
    });
}

at::Tensor product_of(std::span<const Factors> factors) {
    const at::Tensor& a = factors[0].a;
    at::Tensor out = at::empty({a.size(0), factors[0].b.size(1)}, a.options());
    multiply(out, factors, /*accumulate=*/false);
    return out;
}

/// Whether the kernels can write dy^T x there.
bool writable(const at::Tensor& out, const at::Tensor& dy) {
    const bool of_type = out.scalar_type() == dy.scalar_type() || out.scalar_type() == at::kFloat;
    return of_type && (out.stride(1) == 1 || out.size(1) <= 1);
}

void plain_weight_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate) {
    if (out.scalar_type() == dy.scalar_type()) {
        if (accumulate) {
            out.addmm_(dy.t(), x);
        } else {
            at::mm_out(out, dy.t(), x);
        }
        return;
    }
    const at::Tensor gradient = at::mm(dy.t(), x);
    if (accumulate) {
        out.add_(gradient);
    } else {
        out.copy_(gradient);
    }
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    if (has_kernels(x) && gpu::holds(x)) {
        at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
        gpu_multiply(y, x, weight.t(), /*accumulate=*/false, bias);
        return y;
    }
    const Factors factors[] = {{x, weight.t()}};
    at::Tensor y = has_kernels(x) ? product_of(factors) : at::mm(x, weight.t());
    return bias.defined() ? y.add_(bias) : y;
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
    return linear_input_gradient(std::span(&dy, 1), std::span(&weight, 1));
}

at::Tensor linear_input_gradient(std::span<const at::Tensor> dys, std::span<const at::Tensor> weights) {
    if (!has_kernels(dys[0])) {
        at::Tensor sum = at::mm(dys[0], weights[0]);
        for (size_t i = 1; i < dys.size(); ++i) sum.addmm_(dys[i], weights[i]);
        return sum;
    }
    std::vector<Factors> factors;
    for (size_t i = 0; i < dys.size(); ++i) factors.push_back({dys[i], weights[i]});
    return product_of(factors);
}

void write_linear_input_gradient(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& weight) {
    if (!has_kernels(dy)) {
        out.copy_(at::mm(dy, weight));
        return;
    }
    const Factors factors[] = {{dy, weight}};
    multiply(out, factors, /*accumulate=*/false);
}

void linear_weight_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate) {
    if (!has_kernels(x) || !writable(out, dy)) return plain_weight_gradient(out, dy, x, accumulate);
    const Factors factors[] = {{dy.t(), x}};
    multiply(out, factors, accumulate);
}

}  // namespace argosy::ops
