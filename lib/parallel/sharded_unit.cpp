#include "parallel/sharded_unit.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/error.h"
#include "ops/numerics.h"

namespace argosy::parallel {
namespace {

using comm::Op;
using comm::OpKind;

std::vector<UnitLayout::Parameter> unsharded(const std::vector<ShardedUnit::Parameter>& parameters) {
    std::vector<UnitLayout::Parameter> shapes;
    for (const auto& [role, parameter, summed] : parameters)
        shapes.push_back({role, parameter->local_shape()});
    return shapes;
}

/// The view of the unsharded parameter in its padded slice of a buffer.
at::Tensor unpadded(const at::Tensor& slice, const ShardedParameter& parameter) {
    return slice.narrow(0, 0, parameter.local_shape()[0]);
}

}  // namespace

ShardedUnit::ShardedUnit(std::vector<Parameter> parameters, comm::Communicator& group,
                         comm::Communicator& replicas, const JoinedMemory& joined, ReduceAfter reduce_after)
    : parameters_(std::move(parameters)),
      group_(group),
      replicas_(replicas),
      layout_(unsharded(parameters_), group.size()),
      reduce_after_(reduce_after),
      sums_(parameters_.size()) {
    if (!sharded()) {
        weights_.joined = joined.weights;
        gradients_.joined = joined.gradients;
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const auto& [role, parameter, summed] = parameters_[i];
        if (!sharded()) weights_[role] = parameter->compute();
        gradients_[role] = sharded() ? &sums_[i] : &parameter->gradient();
    }
}

void ShardedUnit::gather() {
    ARGOSY_CHECK(sharded() && !gathering_.active());
    const at::Tensor buffer =
        at::empty({layout_.num_elements()}, parameters_[0].parameter->compute().options());
    std::vector<Op> ops;
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const auto& [role, parameter, summed] = parameters_[i];
        const at::Tensor whole = layout_.padded(buffer, i);
        ops.push_back({.kind = OpKind::AllGather, .out = whole, .in = parameter->compute()});
        weights_[role] = unpadded(whole, *parameter);
    }
    weights_.joined = layout_.joined(buffer);
    gathering_ = group_.submit(ops);
}

void ShardedUnit::release() {
    ARGOSY_CHECK(sharded());
    weights_ = {};
}

const model::Weights& ShardedUnit::weights() {
    gathering_.wait();
    return weights_;
}

const model::Gradients& ShardedUnit::gradients(int64_t microbatch) {
    if (sharded() && !gradient_buffer_.defined()) allocate_gradients();
    microbatch_ = microbatch;
    for (const Parameter& each : parameters_) gradients_[each.role]->start_microbatch(microbatch);
    return gradients_;
}

/// Whether the buffer of whole gradients is in bf16.
bool ShardedUnit::rounds_unreduced() const {
    return reduce_after_ == ReduceAfter::Step && parameters_[0].parameter->gradient().rounding.has_value();
}

void ShardedUnit::allocate_gradients() {
    const at::Tensor& sum = parameters_[0].parameter->gradient().sum;
    gradient_buffer_ = at::empty(
        {layout_.num_elements()},
        rounds_unreduced() ? sum.options() : sum.options().dtype(ops::accumulation_type(sum.scalar_type())));
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const ShardedParameter& parameter = *parameters_[i].parameter;
        const int64_t rows = parameter.local_shape()[0];
        const at::Tensor whole = layout_.padded(gradient_buffer_, i);
        whole.narrow(0, rows, whole.size(0) - rows).zero_();
        sums_[i] = {unpadded(whole, parameter)};
        if (rounds_unreduced()) sums_[i].rounding = parameter.unreduced_rounding();
    }
    gradients_.joined = layout_.joined(gradient_buffer_);
}

void ShardedUnit::reduce() {
    ARGOSY_CHECK(sharded() && gradient_buffer_.defined() && !reducing_.active());
    const at::Tensor wide = ops::widened(gradient_buffer_);
    std::vector<Op> ops;
    for (size_t i = 0; i < parameters_.size(); ++i) {
        ShardedParameter& parameter = *parameters_[i].parameter;
        ARGOSY_CHECK(!sums_[i].empty, "{} has no gradient to reduce", parameter.spec().name);
        model::GradientSum& gradient = parameter.gradient();
        const bool in_place = gradient.empty && !gradient.rounding;
        reduced_.push_back(in_place ? gradient.sum : at::empty(gradient.sum.sizes(), wide.options()));
        ops.push_back({.kind = OpKind::ReduceScatter, .out = reduced_[i], .in = layout_.padded(wide, i)});
    }
    reducing_ = group_.submit(ops);
    reduced_microbatch_ = microbatch_;
    sums_.assign(parameters_.size(), {});
    gradients_.joined = {};
    gradient_buffer_.reset();
}

void ShardedUnit::finish_reduce() {
    if (!reducing_.active()) return;
    reducing_.wait();
    for (size_t i = 0; i < parameters_.size(); ++i) {
        model::GradientSum& gradient = parameters_[i].parameter->gradient();
        gradient.start_microbatch(reduced_microbatch_);
        if (gradient.rounding) {
            gradient.add_rounded(reduced_[i]);
        } else if (!gradient.empty) {
            gradient.sum.add_(reduced_[i]);
        }
        gradient.count_gradient();
    }
    reduced_.clear();
}

void ShardedUnit::sum_replicas() {
    ARGOSY_CHECK(!reducing_.active() && !summing_.active());
    std::vector<Op> ops;
    std::vector<at::Tensor> sums(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const auto& [role, parameter, summed] = parameters_[i];
        if (!summed) continue;
        ARGOSY_CHECK(!parameter->gradient().empty, "{} has no gradient to sum", parameter->spec().name);
        sums[i] = parameter->wide_gradient();
        ops.push_back({.kind = OpKind::AllReduce, .out = sums[i], .in = sums[i]});
    }
    summing_ = replicas_.submit(ops);
    summed_ = std::move(sums);
}

void ShardedUnit::finish_sum() {
    summing_.wait();
    for (size_t i = 0; i < summed_.size(); ++i) {
        if (summed_[i].defined()) {
            parameters_[i].parameter->set_gradient(summed_[i], ops::Rounded::GradientOfRanks);
        }
    }
    summed_.clear();
}

int64_t ShardedUnit::gathered_bytes() const {
    const at::Tensor& weight = weights_[parameters_[0].role];  // a view: its storage is the whole buffer
    return sharded() && weight.defined() ? static_cast<int64_t>(weight.storage().nbytes()) : 0;
}

int64_t ShardedUnit::gradient_bytes() const {
    return gradient_buffer_.defined() ? static_cast<int64_t>(gradient_buffer_.nbytes()) : 0;
}

}  // namespace argosy::parallel
