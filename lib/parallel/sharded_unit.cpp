#include "parallel/sharded_unit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "base/error.h"
#include "base/fault.h"

namespace argosy::parallel {
namespace {

using comm::Op;
using comm::OpKind;

/// The unsharded parameter within its padded slice.
at::Tensor unpadded(const at::Tensor& slice, const ShardedParameter& parameter) {
    return slice.narrow(0, 0, parameter.local_shape()[0]);
}

}  // namespace

ShardedUnit::ShardedUnit(std::vector<Binding> bindings, comm::Communicator& group,
                         comm::Communicator& replicas)
    : bindings_(std::move(bindings)), group_(group), replicas_(replicas), sums_(bindings_.size()) {
    for (size_t i = 0; i < bindings_.size(); ++i) {
        const auto& [role, parameter, summed] = bindings_[i];
        if (!sharded()) weights_[role] = parameter->compute();
        gradients_[role] = sharded() ? &sums_[i] : &parameter->gradient();
    }
}

int64_t ShardedUnit::padded_rows(const ShardedParameter& parameter) const {
    return parameter.compute().size(0) * group_.size();
}

int64_t ShardedUnit::buffer_elements() const {
    int64_t count = 0;
    for (const Binding& binding : bindings_) {
        count += padded_rows(*binding.parameter) * binding.parameter->row_elements();
    }
    return count;
}

std::vector<at::Tensor> ShardedUnit::slices(const at::Tensor& buffer) const {
    std::vector<at::Tensor> views;
    int64_t begin = 0;
    for (const Binding& binding : bindings_) {
        std::vector<int64_t> shape = binding.parameter->local_shape();
        shape[0] = padded_rows(*binding.parameter);
        const int64_t count = shape[0] * binding.parameter->row_elements();
        views.push_back(buffer.narrow(0, begin, count).view(shape));
        begin += count;
    }
    return views;
}

void ShardedUnit::gather() {
    ARGOSY_CHECK(sharded() && !gathering_.active());
    const auto views = slices(at::empty({buffer_elements()}, bindings_[0].parameter->compute().options()));
    std::vector<Op> ops;
    for (size_t i = 0; i < bindings_.size(); ++i) {
        const auto& [role, parameter, summed] = bindings_[i];
        ops.push_back({.kind = OpKind::AllGather, .out = views[i], .in = parameter->compute()});
        weights_[role] = unpadded(views[i], *parameter);
    }
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
    gradient_buffer_ = at::empty({buffer_elements()}, bindings_[0].parameter->gradient().sum.options());
    const auto views = slices(gradient_buffer_);
    for (size_t i = 0; i < bindings_.size(); ++i) {
        const ShardedParameter& parameter = *bindings_[i].parameter;
        const int64_t rows = parameter.local_shape()[0];
        views[i].narrow(0, rows, views[i].size(0) - rows).zero_();
        sums_[i] = {unpadded(views[i], parameter)};
    }
}

void ShardedUnit::reduce() {
    ARGOSY_CHECK(sharded() && gradient_buffer_.defined() && !reducing_.active());
    const auto views = slices(gradient_buffer_);
    std::vector<Op> ops;
    for (size_t i = 0; i < bindings_.size(); ++i) {
        ShardedParameter& parameter = *bindings_[i].parameter;
        ARGOSY_CHECK(!sums_[i].empty, "{} has no gradient to reduce", parameter.spec().name);
        model::GradientSum& gradient = parameter.gradient();
        reduced_.push_back(gradient.empty ? gradient.sum : at::empty_like(gradient.sum));
        ops.push_back({.kind = OpKind::ReduceScatter, .out = reduced_[i], .in = views[i]});
    }
    reducing_ = group_.submit(ops);
    sums_.assign(bindings_.size(), {});
    gradient_buffer_.reset();
}

void ShardedUnit::finish_reduce() {
    if (!reducing_.active()) return;
    reducing_.wait();
    for (size_t i = 0; i < bindings_.size(); ++i) {
        model::GradientSum& gradient = bindings_[i].parameter->gradient();
        if (!gradient.empty) gradient.sum.add_(reduced_[i]);
        gradient.empty = false;
    }
    reduced_.clear();
}

void ShardedUnit::sum_replicas() {
    ARGOSY_CHECK(!reducing_.active() && !summing_.active());
    if (fault_planted(Fault::OmitReplicaSum)) return;
    std::vector<Op> ops;
    for (const Binding& binding : bindings_) {
        if (!binding.summed) continue;
        const model::GradientSum& gradient = binding.parameter->gradient();
        ARGOSY_CHECK(!gradient.empty, "{} has no gradient to sum", binding.parameter->spec().name);
        ops.push_back({.kind = OpKind::AllReduce, .out = gradient.sum, .in = gradient.sum});
    }
    summing_ = replicas_.submit(ops);
}

void ShardedUnit::finish_sum() { summing_.wait(); }

int64_t ShardedUnit::gathered_bytes() const {
    const at::Tensor& weight = weights_[bindings_[0].role];  // of the one buffer
    return sharded() && weight.defined() ? static_cast<int64_t>(weight.storage().nbytes()) : 0;
}

int64_t ShardedUnit::gradient_bytes() const {
    return gradient_buffer_.defined() ? static_cast<int64_t>(gradient_buffer_.nbytes()) : 0;
}

}  // namespace argosy::parallel
