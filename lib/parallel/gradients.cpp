#include "parallel/gradients.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "ops/sums.h"
#include "parallel/placement.h"

namespace argosy::parallel {
namespace {

using comm::Op;
using comm::OpKind;

/// First and last stage swap their halves of a tied table's gradient; both add them, so both get the same
/// bits.
void exchange_tied(ParallelModel& model, mesh::Mesh& mesh) {
    comm::Communicator& pipeline = mesh.group(mesh::Axis::Pipeline);
    for (const auto& parameter : model.parameters()) {
        const auto& stages = parameter->spec().stages;
        if (stages.size() < 2) continue;
        const int first = stages.front() % pipeline.size(), last = stages.back() % pipeline.size();
        if (first == last) continue;  // one rank holds both, as one parameter
        const int peer = pipeline.rank() == first ? last : first;
        at::Tensor& sum = parameter->gradient().sum;
        const at::Tensor other = at::empty_like(sum);
        pipeline.run(std::vector<Op>{{.kind = OpKind::Send, .in = sum, .peer = peer},
                                     {.kind = OpKind::Receive, .out = other, .peer = peer}});
        if (!fault_planted(Fault::SkipTiedGradient)) sum.add_(other);
    }
}

}  // namespace

void start_gradients(ParallelModel& model) {
    for (const auto& parameter : model.parameters()) parameter->gradient().empty = true;
}

void sum_remaining(ParallelModel& model, mesh::Mesh& mesh) {
    exchange_tied(model, mesh);
    // One grouped submission for each set of ranks; a parameter that has two sums to make gets them in its
    // own order.
    std::map<std::pair<size_t, std::pair<mesh::AxisSet, int>>, std::vector<Op>> groups;
    for (const auto& parameter : model.parameters()) {
        if (summed_by_program(parameter->spec())) continue;
        const at::Tensor& sum = parameter->gradient().sum;
        for (size_t i = 0; i < parameter->spec().gradient.size(); ++i) {
            const auto& [axes, parts] = parameter->spec().gradient[i];
            if (fault_planted(Fault::OmitTensorSum) && axes.has(mesh::Axis::Tensor)) continue;
            if (fault_planted(Fault::OmitReplicaSum) && axes.has(mesh::Axis::Replicate)) continue;
            groups[{i, {axes, parts}}].push_back({.kind = OpKind::AllReduce, .out = sum, .in = sum});
        }
    }
    for (const auto& [key, ops] : groups) mesh.group(key.second.first, key.second.second).run(ops);
}

at::Tensor owned_squared_norms(ParallelModel& model) {
    const at::TensorOptions options(model.device());
    at::Tensor totals = at::zeros({model.spec().num_layers + 2}, options.dtype(at::kDouble));
    std::vector<at::Tensor> gradients;
    std::vector<int64_t> units;
    for (size_t i = 0; i < model.parameters().size(); ++i) {
        const auto& parameter = model.parameters()[i];
        if (!parameter->owned() && !fault_planted(Fault::DoubleNorm)) continue;
        gradients.push_back(parameter->gradient().sum);
        units.push_back(model.parameter_units()[i]);
    }
    if (gradients.empty()) return totals;
    return totals.index_add_(0, at::tensor(units, at::kLong).to(model.device()),
                             ops::squared_norms(gradients));
}

}  // namespace argosy::parallel
