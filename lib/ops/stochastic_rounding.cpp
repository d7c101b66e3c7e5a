#include "ops/stochastic_rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/kernel_calls.h"

namespace argosy::ops {
namespace {

uint32_t low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t high(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

uint32_t random_half(uint64_t element, uint64_t number, const RoundingKey& key) {
    const uint64_t block = element / 8;
    const auto words = philox({low(block), high(block), low(number), high(number)}, key);
    return words[element % 8 / 2] >> (element % 2 * 16) & 0xFFFF;
}

at::Tensor random_halves(at::IntArrayRef shape, const layout::SlabRows& rows, uint64_t number,
                         const RoundingKey& key) {
    at::Tensor halves = at::empty(shape, at::kInt);
    auto* out = halves.mutable_data_ptr<int32_t>();
    for (int64_t i = 0; i < halves.numel(); ++i) {
        out[i] = static_cast<int32_t>(random_half(rows.element(i), number, key));
    }
    return halves;
}

/// The definition of the addition. Tensors without memory (meta) have no bits to round.
void add_by_operations(const at::Tensor& sum, const at::Tensor& term, bool accumulate,
                       const SumRounding& rounding) {
    const at::Tensor wide = accumulate ? sum.to(at::kFloat) + term : term;
    if (sum.is_meta()) return;
    const uint64_t number = rounding.first->number() + rounding.offset();
    sum.copy_(rounded_stochastically(wide, rounding.rows, number, rounding.key));
}

kernels::AddRounded arguments(const at::Tensor& sum, const at::Tensor& term, bool accumulate,
                              const SumRounding& rounding) {
    return {.size = sum.numel(),
            .first_element = static_cast<uint64_t>(rounding.rows.first),
            .first_number = rounding.first->address_for(sum),
            .number = rounding.offset(),
            .rounding_key = {rounding.key[0], rounding.key[1]},
            .accumulate = accumulate,
            .term = elements<float>(term),
            .sum = mutable_elements<kernels::BFloat16>(sum)};
}

}  // namespace

RoundingKey rounding_key(uint64_t seed, std::string_view parameter, Rounded what, uint32_t part) {
    constexpr uint32_t kTag = 0x726f756e;  // separates this use of seed and name from others
    const uint64_t name = name_key(parameter);
    const auto words = philox({low(seed), high(seed), static_cast<uint32_t>(what) + (part << 8), kTag},
                              {low(name), high(name)});
    return {words[0], words[1]};
}

at::Tensor rounded_stochastically(const at::Tensor& wide, const layout::SlabRows& rows, uint64_t number,
                                  const RoundingKey& key) {
    constexpr int32_t kUpperHalf = -65536;
    const at::Tensor bits = wide.contiguous().view(at::kInt);
    const at::Tensor random = random_halves(wide.sizes(), rows, number, key).to(wide.device());
    const at::Tensor rounded = (bits + random).bitwise_and_(kUpperHalf).view(at::kFloat);
    return at::where(wide.isfinite(), rounded, wide).to(at::kBFloat16);
}

FirstRounding::FirstRounding(c10::Device device)
    : on_device_(at::zeros({}, at::TensorOptions(device).dtype(at::kLong))) {}

void FirstRounding::set(uint64_t number) {
    number_ = number;
    on_device_.fill_(static_cast<int64_t>(number));
}

const uint64_t* FirstRounding::address_for(const at::Tensor& x) const {
    return gpu::holds(x) ? static_cast<const uint64_t*>(on_device_.const_data_ptr()) : &number_;
}

SumRounding SumRounding::from(int64_t begin) const {
    SumRounding part = *this;
    part.rows.first = rows.element(begin);
    return part;
}

void add_rounded(const at::Tensor& sum, const at::Tensor& term, bool accumulate,
                 const SumRounding& rounding) {
    ARGOSY_CHECK(sum.sizes() == term.sizes(), "a sum of {} elements with {}", sum.numel(), term.numel());
    if (!has_kernels(sum)) return add_by_operations(sum, term, accumulate, rounding);
    const kernels::AddRounded whole = arguments(sum, term, accumulate, rounding);
    if (gpu::holds(sum)) {
        return kernels::gpu_table()->add_rounded({whole, rounding.rows.length, rounding.rows.stride},
                                                 gpu::current_stream());
    }
    run_on_slab_rows(whole.size, rounding.rows, [&](int64_t begin, int64_t size, uint64_t first_element) {
        kernels::AddRounded part = whole;
        part.size = size;
        part.first_element = first_element;
        part.term += begin;
        part.sum += begin;
        kernels::table().add_rounded(part);
    });
}

}  // namespace argosy::ops
