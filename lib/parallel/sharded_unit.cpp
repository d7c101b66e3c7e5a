#include "parallel/sharded_unit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "base/error.h"

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
                         comm::Communicator& replicas, const JoinedMemory& joined)
    : parameters_(std::move(parameters)),
      group_(group),
      replicas_(replicas),
      layout_(unsharded(parameters_), group.size()),
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

const model::Gradients& ShardedUnit::gradients() {
    if (sharded() && !gradient_buffer_.defined()) allocate_gradients();
    return gradients_;
}

void ShardedUnit::allocate_gradients() {
    gradient_buffer_ =
        at::empty({layout_.num_elements()}, parameters_[0].parameter->gradient().sum.options());
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const ShardedParameter& parameter = *parameters_[i].parameter;
        const int64_t rows = parameter.local_shape()[0];
        const at::Tensor whole = layout_.padded(gradient_buffer_, i);
        whole.narrow(0, rows, whole.size(0) - rows).zero_();
        sums_[i] = {unpadded(whole, parameter)};
    }
    gradients_.joined = layout_.joined(gradient_buffer_);
}

void ShardedUnit::reduce() {
    ARGOSY_CHECK(sharded() && gradient_buffer_.defined() && !reducing_.active());
    std::vector<Op> ops;
    for (size_t i = 0; i < parameters_.size(); ++i) {
        ShardedParameter& parameter = *parameters_[i].parameter;
        ARGOSY_CHECK(!sums_[i].empty, "{} has no gradient to reduce", parameter.spec().name);
        model::GradientSum& gradient = parameter.gradient();
        reduced_.push_back(gradient.empty ? gradient.sum : at::empty_like(gradient.sum));
        ops.push_back(
            {.kind = OpKind::ReduceScatter, .out = reduced_[i], .in = layout_.padded(gradient_buffer_, i)});
    }
    reducing_ = group_.submit(ops);
    sums_.assign(parameters_.size(), {});
    gradients_.joined = {};
    gradient_buffer_.reset();
}

void ShardedUnit::finish_reduce() {
    if (!reducing_.active()) return;
    reducing_.wait();
    for (size_t i = 0; i < parameters_.size(); ++i) {
        model::GradientSum& gradient = parameters_[i].parameter->gradient();
        if (!gradient.empty) gradient.sum.add_(reduced_[i]);
        gradient.empty = false;
    }
    reduced_.clear();
}

void ShardedUnit::sum_replicas() {
    ARGOSY_CHECK(!reducing_.active() && !summing_.active());
    std::vector<Op> ops;
    for (const Parameter& each : parameters_) {
        if (!each.summed) continue;
        const model::GradientSum& gradient = each.parameter->gradient();
        ARGOSY_CHECK(!gradient.empty, "{} has no gradient to sum", each.parameter->spec().name);
        ops.push_back({.kind = OpKind::AllReduce, .out = gradient.sum, .in = gradient.sum});
    }
    summing_ = replicas_.submit(ops);
}

void ShardedUnit::finish_sum() { summing_.wait(); }

int64_t ShardedUnit::gathered_bytes() const {
    const at::Tensor& weight = weights_[parameters_[0].role];  // a view: its storage is the whole buffer
    return sharded() && weight.defined() ? static_cast<int64_t>(weight.storage().nbytes()) : 0;
}

int64_t ShardedUnit::gradient_bytes() const {
    return gradient_buffer_.defined() ? static_cast<int64_t>(gradient_buffer_.nbytes()) : 0;
}

}  // namespace argosy::parallel
