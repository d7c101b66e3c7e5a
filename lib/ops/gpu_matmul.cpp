#include "ops/gpu_matmul.h"

#include "base/error.h"
#include "cublas/matmul.h"
#include "gpu/stream.h"
#include "ops/tensor_thread.h"

namespace argosy::ops {
namespace {

ElementType element_type(const at::Tensor& x) {
    switch (x.scalar_type()) {
        case at::kFloat:
            return ElementType::Float32;
        case at::kBFloat16:
            return ElementType::BFloat16;
        case at::kHalf:
            return ElementType::Float16;
        default:
            ARGOSY_CHECK(x.scalar_type() == at::kDouble, "a product of {}", toString(x.scalar_type()));
            return ElementType::Float64;
    }
}

template <class Data>
cublas::MatrixOf<Data> matrix(Data* data, const at::Tensor& x) {
    return {data, element_type(x), x.size(0), x.size(1), x.stride(0), x.stride(1)};
}

/// Returns x itself if cuBLASLt can read its strides, else a contiguous copy.
at::Tensor readable(const at::Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1 ? x : x.contiguous(); }

}  // namespace

void gpu_multiply(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate,
                  const at::Tensor& bias) {
    const at::Tensor left = readable(a), right = readable(b);
    multiplier().run({.c = matrix(out.mutable_data_ptr(), out),
                      .a = matrix(left.const_data_ptr(), left),
                      .b = matrix(right.const_data_ptr(), right),
                      .accumulate = accumulate,
                      .bias = bias.defined() ? bias.const_data_ptr() : nullptr},
                     gpu::current_stream());
}

}  // namespace argosy::ops
