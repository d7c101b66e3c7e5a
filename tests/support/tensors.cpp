#include "support/tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace argosy::testing {

at::TensorOptions placed(at::ScalarType type) { return at::TensorOptions(place()).dtype(type); }

at::Tensor RandomTensors::normal(at::IntArrayRef shape, at::ScalarType type, double scale) {
    std::normal_distribution<double> distribution(0, scale);
    std::vector<double> values(c10::multiply_integers(shape));
    for (double& value : values) value = distribution(engine_);
    return at::tensor(values, at::kDouble).reshape(shape).to(placed(type));
}

at::Tensor RandomTensors::integers(at::IntArrayRef shape, int64_t low, int64_t high) {
    std::uniform_int_distribution<int64_t> distribution(low, high - 1);
    std::vector<int64_t> values(c10::multiply_integers(shape));
    for (int64_t& value : values) value = distribution(engine_);
    return at::tensor(values, placed(at::kLong)).reshape(shape);
}

::testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
    if (actual.sizes() != expected.sizes()) {
        return ::testing::AssertionFailure() << actual.sizes() << " against " << expected.sizes();
    }
    if (actual.numel() == 0) return ::testing::AssertionSuccess();
    const at::Tensor wide = expected.cpu().to(at::kDouble);
    const double largest = std::max(wide.abs().max().item<double>(), std::numeric_limits<double>::min());
    const double error = (actual.cpu().to(at::kDouble) - wide).abs().max().item<double>() / largest;
    if (error <= tolerance) return ::testing::AssertionSuccess();  // NaN is not
    return ::testing::AssertionFailure() << "relative error " << error << " above " << tolerance;
}

::testing::AssertionResult identical(const at::Tensor& actual, const at::Tensor& expected) {
    if (actual.sizes() != expected.sizes() || actual.scalar_type() != expected.scalar_type()) {
        return ::testing::AssertionFailure() << actual.toString() << actual.sizes() << " against "
                                             << expected.toString() << expected.sizes();
    }
    const at::Tensor left = actual.cpu().contiguous(), right = expected.cpu().contiguous();
    if (left.nbytes() == 0 ||
        std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0) {
        return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "bits differ";
}

}  // namespace argosy::testing
