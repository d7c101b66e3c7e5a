#include "ops/stochastic_rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
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

/// The random bits of each element of `wide`, on the device of `wide`.
at::Tensor random_halves(const at::Tensor& wide, const layout::SlabRows& rows, uint64_t number,
                         const RoundingKey& key) {
    const c10::Device computed_on = wide.is_meta() ? c10::kMeta : c10::kCPU;
    const at::Tensor halves = at::empty(wide.sizes(), at::TensorOptions(computed_on).dtype(at::kInt));
    auto* out = mutable_elements<int32_t>(halves);
    run_on_parts(halves, halves.numel(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            out[i] = static_cast<int32_t>(random_half(rows.element(i), number, key));
        }
    });
    return halves.to(wide.device());
}

/// The definition of the addition.
void add_by_operations(const at::Tensor& sum, const at::Tensor& term, bool accumulate,
                       const SumRounding& rounding) {
    const at::Tensor wide = accumulate ? sum.to(at::kFloat) + term : term;
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
    constexpr int32_t kUpperHalf = -65536, kExponent = 0x7F800000;  // all bits of kExponent: infinity or NaN
    const at::Tensor bits = wide.contiguous().view(at::kInt);
    const at::Tensor random = random_halves(wide, rows, number, key);
    const at::Tensor is_finite = bits.bitwise_and(kExponent).ne(kExponent);
    const at::Tensor rounded =
        (bits + random).bitwise_and_(kUpperHalf).masked_fill_(is_finite.bitwise_not(), 0);
    return rounded.bitwise_or_(bits.masked_fill(is_finite, 0)).view(at::kFloat).to(at::kBFloat16);
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
    run_on_slab_rows(sum, rounding.rows, [&](int64_t begin, int64_t size, uint64_t first_element) {
        kernels::AddRounded part = whole;
        part.size = size;
        part.first_element = first_element;
        part.term += begin;
        part.sum += begin;
        kernels::table().add_rounded(part);
    });
}

void store(const at::Tensor& into, const at::Tensor& value, const layout::SlabRows& rows, uint64_t number,
           const RoundingKey& key) {
    if (into.scalar_type() != at::kBFloat16) {
        into.copy_(value);
        return;
    }
    const FirstRounding zero(into.device());
    add_rounded(into, value, /*accumulate=*/false,
                {.key = key, .rows = rows, .first = &zero, .count = static_cast<int64_t>(number)});
}

}  // namespace argosy::ops
