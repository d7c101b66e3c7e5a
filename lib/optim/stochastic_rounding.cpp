#include "optim/stochastic_rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include "base/random.h"

namespace argosy::optim {
namespace {

uint32_t low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t high(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

uint32_t random_half(uint64_t element, uint64_t step, const RoundingKey& key) {
    const uint64_t block = element / 8;
    const auto words = philox({low(block), high(block), low(step), high(step)}, key);
    return words[element % 8 / 2] >> (element % 2 * 16) & 0xFFFF;
}

at::Tensor random_halves(at::IntArrayRef shape, const layout::SlabRows& rows, uint64_t step,
                         const RoundingKey& key) {
    at::Tensor halves = at::empty(shape, at::kInt);
    auto* out = halves.mutable_data_ptr<int32_t>();
    for (int64_t i = 0; i < halves.numel(); ++i) {
        out[i] = static_cast<int32_t>(random_half(rows.element(i), step, key));
    }
    return halves;
}

}  // namespace

RoundingKey rounding_key(uint64_t seed, std::string_view parameter, Rounded what) {
    constexpr uint32_t kTag = 0x726f756e;  // separates this use of seed and name from others
    const uint64_t name = name_key(parameter);
    const auto words =
        philox({low(seed), high(seed), static_cast<uint32_t>(what), kTag}, {low(name), high(name)});
    return {words[0], words[1]};
}

at::Tensor rounded_stochastically(const at::Tensor& wide, const layout::SlabRows& rows, uint64_t step,
                                  const RoundingKey& key) {
    constexpr int32_t kUpperHalf = -65536;
    const at::Tensor bits = wide.contiguous().view(at::kInt);
    const at::Tensor random = random_halves(wide.sizes(), rows, step, key).to(wide.device());
    const at::Tensor rounded = (bits + random).bitwise_and_(kUpperHalf).view(at::kFloat);
    return at::where(wide.isfinite(), rounded, wide).to(at::kBFloat16);
}

}  // namespace argosy::optim
