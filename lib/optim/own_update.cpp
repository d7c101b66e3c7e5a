#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "ops/own_kernels.h"
#include "optim/adamw_update.h"
#include "optim/stochastic_rounding.h"

namespace argosy::optim {
namespace {

using kernels::FloatOrBFloat16;

/// The kernel's argument for a tensor, from its first element on.
FloatOrBFloat16 row_of(const at::Tensor& x, const std::string& parameter, Rounded what, uint64_t seed) {
    if (x.scalar_type() == at::kFloat) return {ops::mutable_elements<float>(x), nullptr, {}};
    const RoundingKey key = rounding_key(seed, parameter, what);
    return {nullptr, ops::mutable_elements<kernels::BFloat16>(x), {key[0], key[1]}};
}

kernels::AdamW arguments(const ItemUpdate& one) {
    const auto& [item, moments, update] = one;
    const auto row = [&one](const at::Tensor& x, Rounded what) {
        return row_of(x, one.item.name, what, one.update.seed);
    };
    kernels::AdamW args{.size = item.weights.numel(),
                        .first_element = 0,
                        .update_number = update.number,
                        .gradient = ops::elements<float>(item.gradient),
                        .weights = row(item.weights, Rounded::Weight),
                        .first_moments = row(moments.first, Rounded::FirstMoment),
                        .second_moments = row(moments.second, Rounded::SecondMoment),
                        .bf16_copy = nullptr,
                        .fp16_copy = nullptr,
                        .gradient_factor = static_cast<float>(update.gradient_factor),
                        .decay_factor = static_cast<float>(update.decay_factor),
                        .step_size = static_cast<float>(update.step_size),
                        .root_factor = static_cast<float>(update.root_factor),
                        .beta2 = static_cast<float>(update.beta2),
                        .one_minus_beta1 = static_cast<float>(1 - update.beta1),
                        .one_minus_beta2 = static_cast<float>(1 - update.beta2),
                        .eps = static_cast<float>(update.eps)};
    if (item.compute.is_same(item.weights)) return args;
    const bool is_half = item.compute.scalar_type() == at::kHalf;
    if (is_half) args.fp16_copy = ops::mutable_elements<kernels::Half>(item.compute);
    if (!is_half) args.bf16_copy = ops::mutable_elements<kernels::BFloat16>(item.compute);
    return args;
}

template <class T>
T* advanced(T* pointer, int64_t by) {
    return pointer == nullptr ? nullptr : pointer + by;
}

/// The arguments for `size` elements from `begin` on. REQUIRES: they are in one row of the slab.
kernels::AdamW part(kernels::AdamW args, int64_t begin, int64_t size, const layout::SlabRows& rows) {
    args.size = size;
    args.first_element = static_cast<uint64_t>(rows.element(begin));
    args.gradient += begin;
    for (FloatOrBFloat16* row : {&args.weights, &args.first_moments, &args.second_moments}) {
        row->fp32 = advanced(row->fp32, begin);
        row->bf16 = advanced(row->bf16, begin);
    }
    args.bf16_copy = advanced(args.bf16_copy, begin);
    args.fp16_copy = advanced(args.fp16_copy, begin);
    return args;
}

void update_on_processor(const ItemUpdate& one) {
    constexpr int64_t kGrain = 1 << 15;  // minimum number of elements for one thread
    const kernels::AdamW whole = arguments(one);
    const layout::SlabRows& rows = one.item.rows;
    const int64_t length = rows.length;
    at::parallel_for(0, whole.size, kGrain, [&](int64_t begin, int64_t end) {
        // One call for each row of the slab: the kernel counts elements of the whole parameter.
        for (int64_t next = 0; begin < end; begin = next) {
            next = std::min(end, (begin / length + 1) * length);
            kernels::table().adamw(part(whole, begin, next - begin, rows));
        }
    });
}

void update_on_gpu(std::span<const ItemUpdate> updates) {
    std::vector<kernels::AdamWRows> tensors;
    for (const ItemUpdate& one : updates) {
        const layout::SlabRows& rows = one.item.rows;
        kernels::AdamW args = arguments(one);
        args.first_element = static_cast<uint64_t>(rows.first);
        tensors.push_back({args, rows.length, rows.stride});
    }
    kernels::gpu_table()->adamw(tensors, gpu::current_stream());
}

}  // namespace

void own_update(std::span<const ItemUpdate> updates) {
    const bool on_gpu = gpu::holds(updates[0].item.weights);
    if (on_gpu && ops::fused()) return update_on_gpu(updates);
    for (const ItemUpdate& one : updates) {
        on_gpu ? update_on_gpu({&one, 1}) : update_on_processor(one);
    }
}

}  // namespace argosy::optim
