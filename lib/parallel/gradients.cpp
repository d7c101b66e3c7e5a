#include "parallel/gradients.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <utility>
#include <vector>

#include "ops/sums.h"
#include "parallel/placement.h"

namespace argosy::parallel {
namespace {

using comm::Op;
using comm::OpKind;

/// The first and the last stage send each other their part of a tied table's gradient. Each stage adds the
/// two parts.
void exchange_tied(ParallelModel& model, comm::Mesh& mesh) {
    comm::Communicator& pipeline = mesh.group(layout::Axis::Pipeline);
    for (const auto& parameter : model.parameters()) {
        const std::vector<int>& ranks = parameter->spec().pipeline_ranks;
        if (ranks.size() < 2) continue;
        const int peer = pipeline.rank() == ranks.front() ? ranks.back() : ranks.front();
        const at::Tensor& own = parameter->gradient().sum;
        const at::Tensor other = at::empty_like(own);
        pipeline.run(std::vector<Op>{{.kind = OpKind::Send, .in = own, .peer = peer},
                                     {.kind = OpKind::Receive, .out = other, .peer = peer}});
        parameter->set_gradient(parameter->wide_gradient().add_(other), ops::Rounded::GradientOfStages);
    }
}

}  // namespace

void reset_gradients(ParallelModel& model) {
    for (const auto& parameter : model.parameters()) parameter->gradient().empty = true;
}

void sum_remaining(ParallelModel& model, comm::Mesh& mesh) {
    std::map<std::pair<layout::AxisSet, int>, std::vector<Op>> groups;  // one launch for each group of ranks
    std::vector<std::pair<ShardedParameter*, at::Tensor>> sums;
    for (const auto& parameter : model.parameters()) {
        const auto& [axes, parts] = parameter->spec().gradient;
        if (axes.empty() || summed_by_program(parameter->spec())) continue;
        const at::Tensor sum = parameter->wide_gradient();
        groups[{axes, parts}].push_back({.kind = OpKind::AllReduce, .out = sum, .in = sum});
        sums.emplace_back(parameter.get(), sum);
    }
    for (const auto& [key, ops] : groups) mesh.group(key.first, key.second).run(ops);
    for (const auto& [parameter, sum] : sums) parameter->set_gradient(sum, ops::Rounded::GradientOfRanks);
    exchange_tied(model, mesh);
}

at::Tensor owned_squared_norms(ParallelModel& model) {
    // 1. collect the gradients that this rank owns, unit by unit: parameters() has the order of the units
    std::vector<at::Tensor> gradients;
    std::vector<int64_t> num_owned(model.spec().num_layers + 2);  // of each unit
    for (size_t i = 0; i < model.parameters().size(); ++i) {
        const auto& parameter = model.parameters()[i];
        if (!parameter->owned()) continue;
        gradients.push_back(parameter->gradient().sum);
        ++num_owned[model.parameter_units()[i]];
    }
    if (gradients.empty()) {
        return at::zeros({std::ssize(num_owned)}, at::TensorOptions(model.device()).dtype(at::kDouble));
    }
    // 2. add up the squared norms of each unit in the order of its parameters; on a GPU, index_add_ would add
    //    them in an undefined order
    const at::Tensor squares = ops::squared_norms(gradients);
    std::vector<at::Tensor> totals;
    for (int64_t first = 0; const int64_t count : num_owned) {
        totals.push_back(squares.narrow(0, first, count).sum());
        first += count;
    }
    return at::stack(totals);
}

}  // namespace argosy::parallel
