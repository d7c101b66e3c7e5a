#include "train/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/stochastic_rounding.h"
#include "ops/work.h"

// The update exists twice: as a composition of LibTorch's operations, which defines it, and in kernels, which
// compute the same bits in one pass over memory.
namespace argosy::train {
namespace {

using kernels::FloatOrBFloat16;
using ops::Rounded;
using ops::RoundingKey;
using ops::widened;

/// The factors of one update of a parameter.
struct Factors {
    uint64_t number;  // number of the update, from 1
    double gradient_factor;
    double decay_factor;  // 1 - lr * weight decay
    double step_size;     // lr / (1 - beta1^number)
    double root_factor;   // 1 / sqrt(1 - beta2^number)
    double beta1, beta2, eps;
    uint64_t seed;
};

struct ParameterUpdate {
    const OptimizedParameter& parameter;
    const AdamW::Moments& moments;
    Factors factors;
};

void check(const OptimizedParameter& parameter, at::ScalarType moments) {
    const at::ScalarType weights = parameter.weights.scalar_type();
    const bool wide = weights == at::kDouble;
    ARGOSY_CHECK(wide || weights == at::kFloat || weights == at::kBFloat16, "{} is {}", parameter.name,
                 toString(weights));
    const at::ScalarType gradient = parameter.gradient.scalar_type();
    ARGOSY_CHECK(wide ? gradient == at::kDouble : gradient == at::kFloat || gradient == at::kBFloat16,
                 "{} has a gradient of {}", parameter.name, toString(gradient));
    ARGOSY_CHECK(wide == (moments == at::kDouble), "{} with moments of {}", parameter.name,
                 toString(moments));
}

Factors factors_of(const AdamWOptions& options, const Update& update, const OptimizedParameter& parameter) {
    const auto power = static_cast<double>(update.number);
    const double lr = update.lr * parameter.lr_factor;
    return {.number = static_cast<uint64_t>(update.number),
            .gradient_factor = update.gradient_factor,
            .decay_factor = 1 - lr * parameter.weight_decay,
            .step_size = lr / (1 - std::pow(options.beta1, power)),
            .root_factor = 1 / std::sqrt(1 - std::pow(options.beta2, power)),
            .beta1 = options.beta1,
            .beta2 = options.beta2,
            .eps = options.eps,
            .seed = options.seed};
}

/// The correctly rounded root, as the processor's instruction gives it. LibTorch's root in fp32, which comes
/// from MKL, is not always correctly rounded.
at::Tensor root(const at::Tensor& x) { return x.to(at::kDouble).sqrt().to(x.scalar_type()); }

/// The definition of the update.
void update_by_operations(const ParameterUpdate& one) {
    // 1. scale the gradient
    const auto& [parameter, moments, factors] = one;
    const at::Tensor gradient = widened(parameter.gradient) * factors.gradient_factor;
    // 2. update the moments
    at::Tensor first = widened(moments.first), second = widened(moments.second);
    first = first + (gradient - first) * (1 - factors.beta1);
    second = second * factors.beta2 + gradient.square() * (1 - factors.beta2);
    // 3. decay the weights and step against the direction
    const at::Tensor direction = first / (root(second) * factors.root_factor + factors.eps);
    const at::Tensor weights =
        widened(parameter.weights) * factors.decay_factor - direction * factors.step_size;
    // 4. round and store; the compute copy is made from the rounded weights
    const auto store = [&](const at::Tensor& into, const at::Tensor& value, Rounded what) {
        const RoundingKey key = ops::rounding_key(one.factors.seed, one.parameter.name, what);
        ops::store(into, value, one.parameter.rows, one.factors.number, key);
    };
    store(moments.first, first, Rounded::FirstMoment);
    store(moments.second, second, Rounded::SecondMoment);
    store(parameter.weights, weights, Rounded::Weight);
    if (!parameter.compute.is_same(parameter.weights)) parameter.compute.copy_(parameter.weights);
}

/// The kernel's argument for a tensor, from its first element on.
FloatOrBFloat16 row_of(const at::Tensor& x, const std::string& parameter, Rounded what, uint64_t seed) {
    if (x.scalar_type() == at::kFloat) return {ops::mutable_elements<float>(x), nullptr, {}};
    const RoundingKey key = ops::rounding_key(seed, parameter, what);
    return {nullptr, ops::mutable_elements<kernels::BFloat16>(x), {key[0], key[1]}};
}

kernels::AdamW arguments(const ParameterUpdate& one) {
    const auto& [parameter, moments, factors] = one;
    const auto row = [&one](const at::Tensor& x, Rounded what) {
        return row_of(x, one.parameter.name, what, one.factors.seed);
    };
    kernels::AdamW args{.size = parameter.weights.numel(),
                        .first_element = 0,
                        .update_number = factors.number,
                        .gradient = nullptr,
                        .bf16_gradient = nullptr,
                        .weights = row(parameter.weights, Rounded::Weight),
                        .first_moments = row(moments.first, Rounded::FirstMoment),
                        .second_moments = row(moments.second, Rounded::SecondMoment),
                        .bf16_copy = nullptr,
                        .gradient_factor = static_cast<float>(factors.gradient_factor),
                        .decay_factor = static_cast<float>(factors.decay_factor),
                        .step_size = static_cast<float>(factors.step_size),
                        .root_factor = static_cast<float>(factors.root_factor),
                        .beta2 = static_cast<float>(factors.beta2),
                        .one_minus_beta1 = static_cast<float>(1 - factors.beta1),
                        .one_minus_beta2 = static_cast<float>(1 - factors.beta2),
                        .eps = static_cast<float>(factors.eps)};
    const bool narrow_gradient = parameter.gradient.scalar_type() == at::kBFloat16;
    if (narrow_gradient) args.bf16_gradient = ops::elements<kernels::BFloat16>(parameter.gradient);
    if (!narrow_gradient) args.gradient = ops::elements<float>(parameter.gradient);
    if (!parameter.compute.is_same(parameter.weights))
        args.bf16_copy = ops::mutable_elements<kernels::BFloat16>(parameter.compute);
    return args;
}

template <class T>
T* advanced(T* pointer, int64_t by) {
    return pointer == nullptr ? nullptr : pointer + by;
}

void update_on_processor(const ParameterUpdate& one) {
    const kernels::AdamW whole = arguments(one);
    ops::run_on_slab_rows(
        one.parameter.weights, one.parameter.rows, [&](int64_t begin, int64_t size, uint64_t first_element) {
            kernels::AdamW part = whole;
            part.size = size;
            part.first_element = first_element;
            part.gradient = advanced(part.gradient, begin);
            part.bf16_gradient = advanced(part.bf16_gradient, begin);
            for (FloatOrBFloat16* row : {&part.weights, &part.first_moments, &part.second_moments}) {
                row->fp32 = advanced(row->fp32, begin);
                row->bf16 = advanced(row->bf16, begin);
            }
            part.bf16_copy = advanced(part.bf16_copy, begin);
            kernels::table().adamw(part);
        });
}

void update_on_gpu(std::span<const ParameterUpdate> updates) {
    std::vector<kernels::AdamWRows> tensors;
    for (const ParameterUpdate& one : updates) {
        const layout::SlabRows& rows = one.parameter.rows;
        kernels::AdamW args = arguments(one);
        args.first_element = static_cast<uint64_t>(rows.first);
        tensors.push_back({args, rows.length, rows.stride});
    }
    kernels::gpu_table()->adamw(tensors, gpu::current_stream());
}

/// An update reads and writes weights and moments, reads the gradient and writes the copy for computation.
void note_update(const OptimizedParameter& parameter, const AdamW::Moments& moments) {
    const bool has_copy = !parameter.compute.is_same(parameter.weights);
    ops::note_pass({parameter.weights, parameter.weights, moments.first, moments.first, moments.second,
                    moments.second, parameter.gradient, has_copy ? parameter.compute : at::Tensor()});
}

/// Computes the same bits as update_by_operations(). On a GPU the kernels are queued on the current stream.
void update_by_kernels(std::span<const ParameterUpdate> updates) {
    const bool on_gpu = gpu::holds(updates[0].parameter.weights);
    if (on_gpu && ops::fused()) return update_on_gpu(updates);
    for (const ParameterUpdate& one : updates) {
        on_gpu ? update_on_gpu({&one, 1}) : update_on_processor(one);
    }
}

}  // namespace

AdamW::AdamW(const AdamWOptions& options, std::vector<OptimizedParameter> parameters)
    : options_(options), parameters_(std::move(parameters)) {
    for (const OptimizedParameter& parameter : parameters_) {
        const at::ScalarType type =
            options.moments.value_or(ops::accumulation_type(parameter.weights.scalar_type()));
        check(parameter, type);
        const auto zeros = [&] { return at::zeros_like(parameter.weights, type); };
        moments_.push_back({zeros(), zeros()});
    }
}

void AdamW::update(const Update& update) {
    std::vector<ParameterUpdate> updates;
    for (size_t i = 0; i < parameters_.size(); ++i) {
        note_update(parameters_[i], moments_[i]);
        updates.push_back({parameters_[i], moments_[i], factors_of(options_, update, parameters_[i])});
    }
    if (!parameters_.empty() && ops::has_kernels(parameters_[0].weights)) return update_by_kernels(updates);
    for (const ParameterUpdate& one : updates) update_by_operations(one);
}

std::vector<State> AdamW::states() const {
    std::vector<State> states;
    for (size_t i = 0; i < moments_.size(); ++i) {
        states.push_back({"first", i, moments_[i].first});
        states.push_back({"second", i, moments_[i].second});
    }
    return states;
}

}  // namespace argosy::train
