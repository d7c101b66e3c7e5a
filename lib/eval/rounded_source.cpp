#include "eval/rounded_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "eval/weights.h"

namespace argosy::eval {
namespace {

/// Rounds fp64 to fp32 such that a later rounding to 16 bits acts like a single rounding: an inexact value
/// goes towards zero and gets an odd last bit, so it is never a tie.
float round_to_odd(double value) {
    float result = static_cast<float>(value);
    if (static_cast<double>(result) == value || std::isnan(result)) return result;
    if (std::abs(static_cast<double>(result)) > std::abs(value)) result = std::nextafter(result, 0.0F);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(result) | 1);
}

at::Tensor ready_to_round(const at::Tensor& exact, at::ScalarType type) {
    if (exact.scalar_type() != at::kDouble || type == at::kFloat) return exact;
    at::Tensor odd = at::empty(exact.sizes(), at::kFloat);
    const auto* in = exact.const_data_ptr<double>();
    std::transform(in, in + exact.numel(), odd.mutable_data_ptr<float>(), round_to_odd);
    return odd;
}

}  // namespace

RoundedSource::RoundedSource(const checkpoint::TensorSource& values, const checkpoint::TensorSource& types)
    : values_(values) {
    for (checkpoint::TensorInfo tensor : values.tensors()) {
        const checkpoint::TensorInfo* other = types.find(tensor.name);
        if (other == nullptr) continue;
        tensor.type = other->type;
        tensors_.push_back(std::move(tensor));
    }
}

void RoundedSource::read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
                         std::span<std::byte> out) const {
    const checkpoint::TensorInfo& stored = values_.at(tensor.name);
    if (stored.type == tensor.type) return values_.read(stored, slab, out);
    const auto from = floating_type(stored.type), to = floating_type(tensor.type);
    ARGOSY_CHECK(from && to, "{} is not of floating point", tensor.name);
    const at::Tensor exact = at::empty(slab.size, *from);
    values_.read(stored, slab, {static_cast<std::byte*>(exact.mutable_data_ptr()), exact.nbytes()});
    at::from_blob(out.data(), slab.size, *to).copy_(ready_to_round(exact, *to));
}

}  // namespace argosy::eval
