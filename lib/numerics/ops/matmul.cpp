#include "ops/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "cublas/matmul.h"
#include "gpu/device.h"
#include "ops/gpu_float8.h"
#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/ops_context.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

// Except on Path::Plain, products of bf16 and fp32 use Argosy's kernels on a processor and cuBLASLt on a GPU.
// Argosy's kernels are fast, and they give a token the same bits whatever the other tokens are.
// GFLOP/s of one thread against at::mm, for 512 to 2048 tokens and dims 512 to 8192:
//   Zen 3 (AVX2):         bf16 74-89 against 10; fp32 83-88 against 78-90
//   Zen 5 (AVX512_BF16):  bf16 forward 450-490 against 470-485;
//                         weight gradients 410-460 into fp32 against 440-470 into bf16
// AMX has not been measured.

// Packing an element takes as long as kPackingCost multiplications and additions, an estimate from the rates
// of shares with AVX512_BF16. A is packed once for each kPackedColumns columns of the result.
constexpr int64_t kPackingCost = 32, kPackedColumns = 512;
// Blocks begin at multiples of these numbers, so that inner blocks consist of whole tiles.
constexpr int64_t kRowUnit = 16, kColumnUnit = 64;

/// The time of a block, in multiplications and additions, divided by k.
int64_t cost(int64_t block_rows, int64_t block_columns) {
    const int64_t packed = block_rows * divide_up(block_columns, kPackedColumns) + block_columns;
    return block_rows * block_columns + kPackingCost * packed;
}

/// The factors of one product: a [rows, k], b [k, columns].
struct Factors {
    at::Tensor a, b;
};

template <class T>
kernels::Product<T> product(const Factors& factors) {
    const at::Tensor &a = factors.a, &b = factors.b;
    ARGOSY_CHECK(a.size(1) == b.size(0), "a product of {} columns with {} rows", a.size(1), b.size(0));
    ARGOSY_CHECK(a.scalar_type() == b.scalar_type() && a.device() == b.device(),
                 "a product of unequal types, or on two devices");
    return {{first_element<T>(a), a.stride(0), a.stride(1)},
            {first_element<T>(b), b.stride(1), b.stride(0)},
            a.size(1)};
}

/// Divides the result over the threads.
template <class T, class Sum>
void run_on_threads(void (*kernel)(const kernels::Matmul<T, Sum>&), const kernels::Matmul<T, Sum>& whole,
                    const at::Tensor& out) {
    int64_t k = 0;
    for (int64_t i = 0; i < whole.num_products; ++i) k += whole.products[i].k;
    const ProductGrid grid = divide_product(whole.row_end, whole.column_end, k, threads_of_parts());
    run_on_parts(out, grid.num_blocks(), /*min_per_thread=*/1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            kernels::Matmul<T, Sum> part = whole;
            part.row_begin = block / grid.blocks_along_columns() * grid.block_rows;
            part.row_end = std::min(grid.rows, part.row_begin + grid.block_rows);
            part.column_begin = block % grid.blocks_along_columns() * grid.block_columns;
            part.column_end = std::min(grid.columns, part.column_begin + grid.block_columns);
            kernel(part);
        }
    });
}

/// Makes factor times a sum of products, + bias + addend_factor times the addend.
struct Epilogue {
    at::Tensor addend = {};  // undefined, the result itself, or another matrix with dense rows
    at::Tensor bias = {};    // undefined or [columns], contiguous
    double factor = 1, addend_factor = 1;
};

/// Returns x itself if cuBLASLt can read its strides, else a contiguous copy.
at::Tensor readable(const at::Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1 ? x : x.contiguous(); }

/// Multiplies with cuBLASLt on the current stream. `out` has the type of a and b, or fp32 if that type is
/// bf16; the addend has the type and strides of `out`. REQUIRES: the thread holds an OpsContext.
void gpu_multiply(const at::Tensor& out, const Factors& factors, const Epilogue& epilogue) {
    const at::Tensor left = readable(factors.a), right = readable(factors.b);
    const at::Tensor &addend = epilogue.addend, &bias = epilogue.bias;
    multiplier().run({.c = matrix_of(out.mutable_data_ptr(), out),
                      .a = matrix_of(left.const_data_ptr(), left),
                      .b = matrix_of(right.const_data_ptr(), right),
                      .addend = addend.defined() ? addend.const_data_ptr() : nullptr,
                      .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
                      .factor = epilogue.factor,
                      .addend_factor = epilogue.addend_factor,
                      .max_multiprocessors = product_multiprocessors()},
                     gpu::current_stream());
}

/// Adds one product after the other. The sum is rounded to out's type after each product.
void multiply_on_gpu(const at::Tensor& out, std::span<const Factors> factors, Epilogue epilogue) {
    for (const Factors& one : factors) {
        gpu_multiply(out, one, epilogue);
        epilogue = {.addend = out, .factor = epilogue.factor};
    }
}

void multiply(const at::Tensor& out, std::span<const Factors> factors, const Epilogue& epilogue = {}) {
    const at::Tensor &addend = epilogue.addend, &bias = epilogue.bias;
    ARGOSY_CHECK(!bias.defined() || bias.scalar_type() == out.scalar_type(), "a bias of another type");
    if (gpu::holds(out)) return multiply_on_gpu(out, factors, epilogue);
    with_element_type(factors[0].a.scalar_type(), [&]<class T>(T) {
        std::vector<kernels::Product<T>> products;
        for (const Factors& one : factors) {
            ARGOSY_CHECK(one.a.size(0) == out.size(0) && one.b.size(1) == out.size(1),
                         "a factor does not fit the shape of the result");
            ARGOSY_CHECK(one.a.scalar_type() == factors[0].a.scalar_type(),
                         "the factors have different types");
            products.push_back(product<T>(one));
        }
        const auto arguments = [&]<class Sum>(Sum) {
            return kernels::Matmul<T, Sum>{.products = products.data(),
                                           .num_products = std::ssize(products),
                                           .row_begin = 0,
                                           .row_end = out.size(0),
                                           .column_begin = 0,
                                           .column_end = out.size(1),
                                           .c = mutable_first_element<Sum>(out),
                                           .c_stride = out.stride(0),
                                           .addend = first_element<Sum>(addend),
                                           .addend_stride = addend.defined() ? addend.stride(0) : 0,
                                           .bias = first_element<Sum>(bias),
                                           .factor = static_cast<float>(epilogue.factor),
                                           .addend_factor = static_cast<float>(epilogue.addend_factor)};
        };
        const kernels::TypedKernels<T>& kernels_of_type = kernels::table().of<T>();
        if (out.scalar_type() == at::kFloat) {
            run_on_threads(kernels_of_type.matmul_to_float, arguments(float{}), out);
        } else {
            run_on_threads(kernels_of_type.matmul, arguments(T{}), out);
        }
    });
}

at::Tensor product_of(std::span<const Factors> factors) {
    const at::Tensor& a = factors[0].a;
    at::Tensor out = at::empty({a.size(0), factors[0].b.size(1)}, a.options());
    for (const Factors& one : factors) note_product(out, one.a, one.a.size(1));
    multiply(out, factors);
    return out;
}

at::Tensor plain_product(std::span<const Factors> factors) {
    at::Tensor sum = at::mm(factors[0].a, factors[0].b);
    for (const Factors& one : factors) note_product(sum, one.a, one.a.size(1));
    for (const Factors& one : factors.subspan(1)) sum.addmm_(one.a, one.b);
    return sum;
}

/// Whether the kernels can write dy^T x to `out`.
bool writable(const at::Tensor& out, const at::Tensor& dy) {
    const bool of_type = out.scalar_type() == dy.scalar_type() || out.scalar_type() == at::kFloat;
    return of_type && has_dense_rows(out);
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

/// Returns the bias without gaps; undefined if it is undefined.
at::Tensor in_one_piece(const at::Tensor& bias) { return bias.defined() ? bias.contiguous() : bias; }

/// y = x W^T + bias. `y` may be some columns of a wider matrix.
void write_linear(at::Tensor y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    note_product(y, x, x.size(1));
    if (has_kernels(x)) {
        const Factors factors[] = {{x, weight.t()}};
        multiply(y, factors, {.bias = in_one_piece(bias)});
    } else {
        at::mm_out(y, x, weight.t());
        if (bias.defined()) y.add_(bias);
    }
}

/// Returns the factors of one product for each part of the weight: the part's columns of dy, and the part.
std::vector<Factors> factors_of(const at::Tensor& dy, const Stack& weight) {
    std::vector<Factors> factors;
    for (int64_t begin = 0; const at::Tensor& part : weight.parts) {
        factors.push_back({dy.narrow(1, begin, part.size(0)), part});
        begin += part.size(0);
    }
    return factors;
}

/// The forward product of a layer has fast accumulation, the products of gradients do not, as in torchao.
Summing forward_summing(const Stack& weight) { return {weight.recipe->accumulation, /*fast=*/true}; }
Summing gradient_summing(Accumulation accumulation) { return {accumulation, /*fast=*/false}; }

/// The result of a product of x, not yet computed.
at::Tensor empty_product(const Operand& x, int64_t columns) {
    return at::empty({x.values.size(0), columns}, x.values.options().dtype(x.type));
}

}  // namespace

ProductGrid divide_product(int64_t rows, int64_t columns, int64_t k, int num_threads) {
    constexpr double kMinFlops = 4e6;
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns * (k + 1));
    const auto max_blocks =
        std::clamp<int64_t>(static_cast<int64_t>(flops / kMinFlops), 1, std::max(1, num_threads));
    ProductGrid best{rows, columns, std::max<int64_t>(1, rows), std::max<int64_t>(1, columns)};
    for (int64_t parts = 1; parts <= max_blocks; ++parts) {
        const int64_t block_rows = std::min(rows, round_up(divide_up(rows, parts), kRowUnit));
        const int64_t block_columns =
            std::min(columns, round_up(divide_up(columns, max_blocks / parts), kColumnUnit));
        if (rows == 0 || columns == 0) break;
        if (cost(block_rows, block_columns) < cost(best.block_rows, best.block_columns))
            best = {rows, columns, block_rows, block_columns};
    }
    return best;
}

void write_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
    note_product(out, a, a.size(1));
    if (has_kernels(a)) {
        const Factors factors[] = {{a, b}};
        multiply(out, factors);
    } else {
        out.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
    }
}

Stack Stack::of(const at::Tensor& weight, const Recipe& recipe) {
    if (!weight.defined()) return {};
    return {{weight}, weight, &recipe};
}

at::Tensor Stack::whole() const {
    if (all.values.defined()) return all.values;
    if (!is_float8(parts[0].scalar_type())) return at::cat(parts);
    std::vector<at::Tensor> bytes;
    for (const at::Tensor& part : parts) bytes.push_back(part.view(at::kByte));
    return at::cat(bytes).view(parts[0].scalar_type());
}

Stack Stack::cast(const Cast& cast, SumOver summed, const at::Tensor& largest) const {
    if (cast.scaling == Scaling::None) return *this;
    return {{}, ops::cast(all.scaled() ? all : whole(), cast, summed, largest), recipe, name};
}

int64_t Stack::num_rows() const {
    if (all.values.defined()) return all.values.size(0);
    int64_t count = 0;
    for (const at::Tensor& part : parts) count += part.size(0);
    return count;
}

int64_t Stack::num_columns() const { return (all.values.defined() ? all.values : parts[0]).size(1); }

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    write_linear(y, x, weight, bias);
    return y;
}

void write_linear(const at::Tensor& y, const Operand& x, const Stack& weight, const Stack& bias) {
    if (x.scaled()) {
        const at::Tensor biases = bias.parts.empty() ? at::Tensor() : bias.whole();
        return multiply_scaled(y, x, weight.all.transposed(), forward_summing(weight), /*addend=*/{}, biases);
    }
    const bool joined = weight.all.values.defined() && (bias.parts.empty() || bias.all.values.defined());
    if (has_kernels(x.values) && joined) {
        return write_linear(y, x.values, weight.all.values, bias.all.values);
    }
    int64_t begin = 0;
    for (size_t i = 0; i < weight.parts.size(); ++i) {
        const int64_t rows = weight.parts[i].size(0);
        write_linear(y.narrow(1, begin, rows), x.values, weight.parts[i],
                     bias.parts.empty() ? at::Tensor() : bias.parts[i]);
        begin += rows;
    }
}

at::Tensor linear(const Operand& x, const Stack& weight, const Stack& bias) {
    at::Tensor y = empty_product(x, weight.num_rows());
    write_linear(y, x, weight, bias);
    return y;
}

at::Tensor add_linear(const at::Tensor& addend, const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias) {
    if (!has_kernels(x)) return linear(x, weight, bias).add_(addend);
    ARGOSY_CHECK(addend.scalar_type() == x.scalar_type() && addend.size(0) == x.size(0) &&
                     addend.size(1) == weight.size(0),
                 "an addend of another kind than the product");
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    note_product(y, x, x.size(1));
    const Factors factors[] = {{x, weight.t()}};
    multiply(y, factors, {.addend = addend.contiguous(), .bias = in_one_piece(bias)});
    return y;
}

at::Tensor add_linear(const at::Tensor& addend, const Operand& x, const Stack& weight,
                      const at::Tensor& bias) {
    if (!x.scaled()) return add_linear(addend, x.values, weight.all.values, bias);
    at::Tensor y = empty_product(x, weight.num_rows());
    multiply_scaled(y, x, weight.all.transposed(), forward_summing(weight), addend, bias);
    return y;
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
    const Factors factors[] = {{dy, weight}};
    return has_kernels(dy) ? product_of(factors) : plain_product(factors);
}

at::Tensor linear_input_gradient(const Operand& dy, const Stack& weight) {
    if (dy.scaled()) {
        at::Tensor dx = empty_product(dy, weight.num_columns());
        multiply_scaled(dx, dy, weight.all, gradient_summing(weight.recipe->accumulation));
        return dx;
    }
    const at::Tensor& values = dy.values;
    if (has_kernels(values) && gpu::holds(values) && weight.all.values.defined())
        return linear_input_gradient(values, weight.all.values);
    const std::vector<Factors> factors = factors_of(values, weight);
    return has_kernels(values) ? product_of(factors) : plain_product(factors);
}

void write_linear_input_gradient(const at::Tensor& out, const Operand& dy, const Stack& weight) {
    if (dy.scaled())
        return multiply_scaled(out, dy, weight.all, gradient_summing(weight.recipe->accumulation));
    note_product(out, dy.values, dy.values.size(1));
    if (!has_kernels(dy.values)) {
        out.copy_(at::mm(dy.values, weight.whole()));
        return;
    }
    multiply(out, factors_of(dy.values, weight));
}

void linear_weight_gradient(at::Tensor& out, const Operand& dy_operand, const Operand& x_operand,
                            bool accumulate, Accumulation accumulation) {
    if (dy_operand.scaled()) {
        return multiply_scaled(out, dy_operand.transposed(), x_operand, gradient_summing(accumulation),
                               accumulate ? out : at::Tensor());
    }
    const at::Tensor &dy = dy_operand.values, &x = x_operand.values;
    note_product(out, dy, dy.size(0));
    if (!has_kernels(x) || !writable(out, dy)) return plain_weight_gradient(out, dy, x, accumulate);
    const Factors factors[] = {{dy.t(), x}};
    multiply(out, factors, {.addend = accumulate ? out : at::Tensor()});
}

void write_scaled_product(const at::Tensor& out, double factor, const at::Tensor& a, const at::Tensor& b,
                          double addend_factor, const at::Tensor& addend) {
    const at::Tensor added = addend_factor == 0 ? at::Tensor() : addend;
    const at::ScalarType type = out.scalar_type();
    ARGOSY_CHECK(
        out.is_contiguous() && (type == a.scalar_type() || type == accumulation_type(a.scalar_type())),
        "the result of a scaled product is strided or of another type");
    ARGOSY_CHECK(
        !added.defined() || (added.sizes() == out.sizes() && added.scalar_type() == out.scalar_type()),
        "an addend of another kind than the product");
    note_product(out, a, a.size(1));
    if (has_kernels(a) && !(gpu::holds(a) && a.size(1) == 0)) {
        const Factors factors[] = {{a, b}};
        return multiply(out, factors,
                        {.addend = added.defined() ? added.contiguous() : added,
                         .factor = factor,
                         .addend_factor = addend_factor});
    }
    at::Tensor result = out;
    at::addmm_out(result, added.defined() ? added : out, a.to(type), b.to(type),
                  added.defined() ? addend_factor : 0, factor);
}

}  // namespace argosy::ops
