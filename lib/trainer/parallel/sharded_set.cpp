#include "parallel/sharded_set.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/numerics.h"

namespace argosy::parallel {
namespace {

using comm::Op;
using comm::OpKind;

std::vector<UnitLayout::Parameter> unsharded(const std::vector<ShardedSet::Parameter>& parameters) {
    std::vector<UnitLayout::Parameter> shapes;
    for (const ShardedSet::Parameter& each : parameters)
        shapes.push_back({each.place, each.parameter->local_shape()});
    return shapes;
}

/// The view of the unsharded parameter in its padded slice of a buffer.
at::Tensor unpadded(const at::Tensor& slice, const ShardedParameter& parameter) {
    return slice.narrow(0, 0, parameter.local_shape()[0]);
}

/// The rank of `pipeline` that holds the tied table too.
int other_holder(const ShardedParameter& table, const comm::Communicator& pipeline) {
    const std::vector<int>& ranks = table.spec().pipeline_ranks;
    return pipeline.rank() == ranks.front() ? ranks.back() : ranks.front();
}

}  // namespace

ShardedSet::ShardedSet(std::vector<Parameter> parameters, comm::Communicator& group, model::Weights& weights,
                       model::Gradients& gradients, ReduceAfter reduce_after)
    : parameters_(std::move(parameters)),
      group_(group),
      weight_buffers_(weight_buffers()),
      layout_(unsharded(parameters_), group.size()),
      reduce_after_(reduce_after),
      weights_(weights),
      gradients_(gradients),
      sums_(parameters_.size()) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
        ShardedParameter& parameter = *parameters_[i].parameter;
        if (!sharded()) weights_.tensors[parameters_[i].number] = parameter.compute();
        gradients_.sums[parameters_[i].number] = sharded() ? &sums_[i] : &parameter.gradient();
    }
}

std::vector<ShardedSet::WeightBuffer> ShardedSet::weight_buffers() const {
    std::vector<WeightBuffer> buffers;
    for (const bool in_float8 : {false, true}) {
        std::vector<Parameter> chosen;
        std::vector<size_t> numbers;
        for (size_t i = 0; i < parameters_.size(); ++i) {
            if (parameters_[i].parameter->scale().defined() != in_float8) continue;
            chosen.push_back(parameters_[i]);
            numbers.push_back(i);
        }
        if (numbers.empty()) continue;
        buffers.push_back({chosen[0].parameter->compute().scalar_type(), numbers,
                           UnitLayout(unsharded(chosen), group_.size())});
    }
    return buffers;
}

void ShardedSet::gather() {
    ARGOSY_CHECK(sharded() && !gathering_.active());
    std::vector<Op> ops;
    for (const auto& [type, numbers, layout] : weight_buffers_) {
        const at::Tensor buffer =
            group_.make_tensor(comm::Collectives::Others, {layout.num_elements()},
                               parameters_[0].parameter->compute().options().dtype(type));
        for (size_t i = 0; i < numbers.size(); ++i) {
            const ShardedParameter& parameter = *parameters_[numbers[i]].parameter;
            const at::Tensor whole = layout.padded(buffer, i);
            ops.push_back({.kind = OpKind::AllGather,
                           .out = ops::for_transfer(whole),
                           .in = ops::for_transfer(parameter.compute())});
            weights_.tensors[parameters_[numbers[i]].number] = unpadded(whole, parameter);
        }
        for (const auto& [first, all] : layout.joined(buffer)) weights_.joined.insert_or_assign(first, all);
    }
    gathering_ = group_.submit(ops);
}

void ShardedSet::release() {
    ARGOSY_CHECK(sharded());
    for (const Parameter& each : parameters_) {
        weights_.tensors[each.number].reset();
        weights_.joined.erase(each.number);
    }
}

void ShardedSet::start_gradients(int64_t microbatch) {
    if (sharded() && !gradient_buffer_.defined()) allocate_gradients();
    microbatch_ = microbatch;
    for (const Parameter& each : parameters_) gradients_.sums[each.number]->start_microbatch(microbatch);
}

/// A tensor without values that is reduced, or has what a reduction gives.
at::Tensor ShardedSet::reduced_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
    return group_.make_tensor(comm::Collectives::Reductions, shape, options);
}

/// Whether the buffer of whole gradients is in bf16.
bool ShardedSet::rounds_unreduced() const {
    return reduce_after_ == ReduceAfter::Step && parameters_[0].parameter->gradient().rounding.has_value();
}

void ShardedSet::allocate_gradients() {
    const at::Tensor& sum = parameters_[0].parameter->gradient().sum;
    const at::TensorOptions wide = sum.options().dtype(ops::accumulation_type(sum.scalar_type()));
    gradient_buffer_ = rounds_unreduced() ? at::empty({layout_.num_elements()}, sum.options())
                                          : reduced_tensor({layout_.num_elements()}, wide);
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const ShardedParameter& parameter = *parameters_[i].parameter;
        const int64_t rows = parameter.local_shape()[0];
        const at::Tensor whole = layout_.padded(gradient_buffer_, i);
        whole.narrow(0, rows, whole.size(0) - rows).zero_();
        sums_[i] = {unpadded(whole, parameter)};
        if (rounds_unreduced()) sums_[i].rounding = parameter.unreduced_rounding();
    }
    gradients_.joined.merge(layout_.joined(gradient_buffer_));
}

void ShardedSet::reduce() {
    ARGOSY_CHECK(sharded() && gradient_buffer_.defined() && !reducing_.active());
    const bool is_wide =
        gradient_buffer_.scalar_type() == ops::accumulation_type(gradient_buffer_.scalar_type());
    const at::Tensor wide =
        is_wide ? gradient_buffer_
                : reduced_tensor(gradient_buffer_.sizes(), gradient_buffer_.options().dtype(at::kFloat))
                      .copy_(gradient_buffer_);
    std::vector<Op> ops;
    for (size_t i = 0; i < parameters_.size(); ++i) {
        ShardedParameter& parameter = *parameters_[i].parameter;
        ARGOSY_CHECK(!sums_[i].empty, "{} has no gradient to reduce", parameter.spec().name);
        model::GradientSum& gradient = parameter.gradient();
        const bool in_place = gradient.empty && !gradient.rounding;
        reduced_.push_back(in_place ? gradient.sum : reduced_tensor(gradient.sum.sizes(), wide.options()));
        ops.push_back({.kind = OpKind::ReduceScatter, .out = reduced_[i], .in = layout_.padded(wide, i)});
    }
    reducing_ = group_.submit(ops);
    reduced_microbatch_ = microbatch_;
    sums_.assign(parameters_.size(), {});
    for (const Parameter& each : parameters_) gradients_.joined.erase(each.number);
    gradient_buffer_.reset();
}

void ShardedSet::finish_reduce() {
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

void ShardedSet::sum() {
    ARGOSY_CHECK(!reducing_.active() && summing_.empty());
    // 1. one launch for each group of ranks; the order of the groups is that of the parameters on every rank
    std::vector<std::pair<comm::Communicator*, std::vector<Op>>> launches;
    std::vector<at::Tensor> sums(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const auto& [place, parameter, summed_over, number] = parameters_[i];
        if (summed_over == nullptr) continue;
        ARGOSY_CHECK(!parameter->gradient().empty, "{} has no gradient to sum", parameter->spec().name);
        sums[i] = parameter->wide_gradient();
        auto launch = std::ranges::find(launches, summed_over, [](const auto& each) { return each.first; });
        if (launch == launches.end()) launch = launches.insert(launch, {summed_over, {}});
        launch->second.push_back(
            {.kind = OpKind::AllReduce, .out = sums[i], .in = sums[i], .purpose = {"gradients"}});
    }
    // 2. start them
    for (const auto& [group, ops] : launches) summing_.push_back(group->submit(ops));
    summed_ = std::move(sums);
}

void ShardedSet::finish_sum() {
    for (comm::Pending& each : std::exchange(summing_, {})) each.wait();
    for (size_t i = 0; i < summed_.size(); ++i) {
        if (summed_[i].defined()) {
            parameters_[i].parameter->set_gradient(summed_[i], ops::Rounded::GradientOfRanks);
        }
    }
    summed_.clear();
}

ShardedParameter& ShardedSet::tied_table() {
    const auto table = std::ranges::find_if(
        parameters_, [](const Parameter& each) { return each.parameter->spec().pipeline_ranks.size() > 1; });
    ARGOSY_CHECK(table != parameters_.end(), "the set has no table that another rank holds");
    return *table->parameter;
}

void ShardedSet::send_table(comm::Communicator& pipeline) {
    ShardedParameter& table = tied_table();
    ARGOSY_CHECK(!table.gradient().empty, "{} has no gradient to send", table.spec().name);
    sending_table_ = pipeline.submit(
        {.kind = OpKind::Send, .in = table.gradient().sum, .peer = other_holder(table, pipeline)});
}

void ShardedSet::receive_table(comm::Communicator& pipeline) {
    ShardedParameter& table = tied_table();
    table_gradient_ = at::empty_like(table.gradient().sum);
    receiving_table_ = pipeline.submit(
        {.kind = OpKind::Receive, .out = table_gradient_, .peer = other_holder(table, pipeline)});
}

void ShardedSet::add_table() {
    ARGOSY_CHECK(sending_table_.active() && receiving_table_.active());
    receiving_table_.wait();
    sending_table_.wait();
    ShardedParameter& table = tied_table();
    table.set_gradient(table.wide_gradient().add_(std::exchange(table_gradient_, {})),
                       ops::Rounded::GradientOfStages);
}

int64_t ShardedSet::gathered_bytes() const {
    int64_t bytes = 0;
    for (const WeightBuffer& buffer : weight_buffers_) {
        const at::Tensor& weight = weights_.tensors[parameters_[buffer.parameters[0]].number];  // a view
        if (sharded() && weight.defined()) bytes += static_cast<int64_t>(weight.storage().nbytes());
    }
    return bytes;
}

int64_t ShardedSet::gradient_bytes() const {
    return gradient_buffer_.defined() ? static_cast<int64_t>(gradient_buffer_.nbytes()) : 0;
}

}  // namespace argosy::parallel
