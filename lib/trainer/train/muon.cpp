#include "train/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "ops/numerics.h"
#include "ops/stochastic_rounding.h"
#include "ops/work.h"

namespace argosy::train {
namespace {

/// The parts of a matrix that are made orthogonal, one below the other, all of the same size.
struct Blocks {
    int64_t count, rows, columns;
};

Blocks blocks_of(const layout::ParamSpec& spec, const layout::Range& rows, const MuonOptions& options) {
    ARGOSY_CHECK(spec.shape.size() == 2, "{} is no matrix", spec.name);
    const int64_t of_parameter = options.by_head && spec.num_heads > 1 ? spec.num_heads : spec.num_matrices;
    const int64_t size = spec.shape[0] / of_parameter;
    return {rows.size / size, size, spec.shape[1]};
}

double lr_factor(const Blocks& blocks, MuonOptions::AdjustLr kind) {
    const auto rows = static_cast<double>(blocks.rows), columns = static_cast<double>(blocks.columns);
    switch (kind) {
        case MuonOptions::AdjustLr::MatchRmsAdamW:
            return 0.2 * std::sqrt(std::max(rows, columns));
        case MuonOptions::AdjustLr::Original:
            return std::sqrt(std::max(1.0, rows / columns));
        case MuonOptions::AdjustLr::Spectral:
            return std::sqrt(std::max(rows, columns));
    }
    return 1;
}

/// The type of the steps. A rank without matrices exchanges none, so its type does not matter.
at::ScalarType type_of_steps(const MuonOptions& options, const std::vector<OptimizedParameter>& parameters) {
    const bool wide = !parameters.empty() && parameters[0].weights.scalar_type() == at::kDouble;
    return wide ? at::kDouble : options.ns_dtype.value_or(at::kBFloat16);
}

at::Tensor scaled(const at::Tensor& gradient, const Update& update) {
    const at::Tensor scaled = ops::widened(gradient) * update.gradient_factor;
    ops::note_pass({gradient, scaled});
    return scaled;
}

/// The cost of a matrix in FLOPs of bf16. A rank that shares it with its tensor group has its share of the
/// products, and in each step 8 bytes travel for an element of A: A is summed in fp32, A and C are gathered
/// in bf16.
MatrixCost cost_of(const layout::ParamSpec& spec, const layout::Range& rows, const MuonOptions& options,
                   const layout::MeshShape& mesh) {
    // The FLOPs in the time of a byte between tensor ranks. Plans have 1900 for H100 and H200 (692 TFLOP/s,
    // 360 GB/s), 900 for A100. The planned updates of 70B and 405B are shortest with 1000, on A100 to B200:
    // slices also shorten the travel of the first and the last wave, which nothing overlaps.
    constexpr double kFlopsOfByte = 1000;
    const Blocks blocks = blocks_of(spec, rows, options);
    MatrixCost cost{static_cast<double>(blocks.count) *
                    ops::orthogonalization_flops(blocks.rows, blocks.columns, options.ns_steps)};
    const int degree = mesh.degree(layout::Axis::Tensor);
    const auto is_slice = [&](const layout::Cut& cut) {
        return cut.axes == layout::Axis::Tensor && cut.parts == degree &&
               spec.shape[cut.dim] >= spec.shape[1 - cut.dim];
    };
    if (degree == 1 || blocks.count > 1 || spec.num_matrices > 1 || spec.cuts.empty() ||
        !is_slice(spec.cuts[0]))
        return cost;
    const auto short_side = static_cast<double>(std::min(blocks.rows, blocks.columns));
    const double bytes = 8 * options.ns_steps * short_side * short_side * (degree - 1) / degree;
    cost.shared = cost.alone / degree + kFlopsOfByte * bytes;
    return cost;
}

/// The ranks of a tensor group.
class TensorRanks : public ops::SliceRanks {
  public:
    explicit TensorRanks(comm::Communicator& group) : group_(group) {}
    int count() const override { return group_.size(); }
    void sum(const at::Tensor& values) const override { run(comm::OpKind::AllReduce, values, values); }
    at::Tensor reduce_rows(const at::Tensor& partial) const override {
        const at::Tensor own = at::empty({partial.size(0) / count(), partial.size(1)}, partial.options());
        run(comm::OpKind::ReduceScatter, own, partial);
        return own;
    }
    at::Tensor gather_rows(const at::Tensor& own) const override {
        const at::Tensor all = at::empty({own.size(0) * count(), own.size(1)}, own.options());
        run(comm::OpKind::AllGather, all, own);
        return all;
    }

  private:
    void run(comm::OpKind kind, const at::Tensor& out, const at::Tensor& in) const {
        group_.run({.kind = kind, .out = out, .in = in, .purpose = {"Newton-Schulz"}});
    }

    comm::Communicator& group_;
};

std::unique_ptr<ops::SliceRanks> slice_ranks(comm::Mesh& mesh) {
    if (mesh.degree(layout::Axis::Tensor) == 1) return std::make_unique<ops::SliceRanks>();
    return std::make_unique<TensorRanks>(mesh.group(layout::Axis::Tensor));
}

}  // namespace

Muon::Muon(const MuonOptions& options, std::vector<OptimizedParameter> parameters, comm::Mesh& mesh)
    : options_(options),
      parameters_(std::move(parameters)),
      matrices_(divided(mesh.shape())),
      ns_dtype_(type_of_steps(options, parameters_)),
      exchange_(exchanged(mesh.shape()), ns_dtype_, mesh),
      slice_ranks_(slice_ranks(mesh)) {
    for (const OptimizedParameter& parameter : parameters_) {
        const at::ScalarType wide = ops::accumulation_type(parameter.weights.scalar_type());
        const at::ScalarType type = options.state.value_or(wide);
        ARGOSY_CHECK((wide == at::kDouble) == (type == at::kDouble), "{} with a momentum of {}",
                     parameter.name, toString(type));
        momenta_.push_back(at::zeros_like(parameter.weights, type));
    }
}

/// The matrices of stacks stand together as far as each rank still owns several parts, so that their work is
/// about equal, and no rank owns more of a stack than it holds whole: that much need not travel.
std::vector<Muon::Matrix> Muon::divided(const layout::MeshShape& mesh) const {
    constexpr int64_t kPartsOfRank = 4;
    const int64_t num_ranks = mesh.num_ranks() / mesh.degree(layout::Axis::Pipeline);
    int64_t num_matrices = 0;
    for (const OptimizedParameter& parameter : parameters_) num_matrices += parameter.spec->num_matrices;
    std::vector<Matrix> matrices;
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const layout::ParamSpec& spec = *parameters_[i].spec;
        const int64_t rows = spec.shape[0] / spec.num_matrices;
        const int64_t held = layout::slab_of(spec, mesh, {}).size[0] / rows;
        int64_t together = std::min(num_matrices / (kPartsOfRank * num_ranks), spec.num_matrices);
        if (held > 0) together = std::min(together, held);
        together = std::max<int64_t>(together, 1);
        while (spec.num_matrices % together != 0) --together;
        const int64_t size = rows * together;
        for (int64_t begin = 0; begin < spec.shape[0]; begin += size) matrices.push_back({i, {begin, size}});
    }
    return matrices;
}

std::vector<MatrixExchange::Matrix> Muon::exchanged(const layout::MeshShape& mesh) const {
    std::vector<MatrixExchange::Matrix> exchanged;
    for (const auto& [parameter, rows] : matrices_) {
        const layout::ParamSpec& spec = *parameters_[parameter].spec;
        exchanged.push_back({&spec, rows, cost_of(spec, rows, options_, mesh)});
    }
    return exchanged;
}

void Muon::update(const Update& update) {
    for (size_t i = 0; i < parameters_.size(); ++i) add_gradient(i, update);
    exchange_.run({.part = [&](size_t i) { return direction(i, update); },
                   .compute = [&](size_t i, const at::Tensor& whole) { return orthogonal(i, whole); },
                   .apply = [&](size_t i, const at::Tensor& part) { step(i, part, update); }});
}

/// The rows of this rank's part of a matrix, in a tensor with the rows of its shard of the parameter.
at::Tensor Muon::rows_of(const at::Tensor& tensor, size_t matrix) const {
    const OptimizedParameter& parameter = parameters_[matrices_[matrix].parameter];
    const layout::Slab part = exchange_.own_part(matrix);
    const int64_t first = parameter.rows.first / parameter.spec->shape[1];  // row of the shard
    return tensor.narrow(0, part.offset[0] - first, part.size[0]);
}

/// Moves the momentum towards the gradient.
void Muon::add_gradient(size_t i, const Update& update) const {
    const OptimizedParameter& parameter = parameters_[i];
    const at::Tensor gradient = scaled(parameter.gradient, update), &momentum = momenta_[i];
    ops::note_pass({momentum, momentum, gradient});
    if (momentum.scalar_type() == gradient.scalar_type()) {
        momentum.lerp_(gradient, 1 - options_.momentum);
        return;
    }
    const at::Tensor wide = ops::widened(momentum).lerp_(gradient, 1 - options_.momentum);
    ops::note_pass({wide, wide, momentum});
    const ops::RoundingKey key = ops::rounding_key(options_.seed, parameter.name, ops::Rounded::FirstMoment);
    ops::store(momentum, wide, parameter.rows, static_cast<uint64_t>(update.number), key);
}

/// Returns this rank's part of the matrix to make orthogonal.
at::Tensor Muon::direction(size_t i, const Update& update) const {
    const size_t parameter = matrices_[i].parameter;
    const at::Tensor momentum = ops::widened(rows_of(momenta_[parameter], i));
    if (!options_.nesterov) return momentum.to(ns_dtype_);
    const at::Tensor gradient = rows_of(parameters_[parameter].gradient, i);
    const at::Tensor direction = scaled(gradient, update).lerp_(momentum, options_.momentum);
    ops::note_pass({direction, momentum, direction});
    return direction.to(ns_dtype_);
}

/// `direction` is that of the matrix, or of this rank's slice of a shared one.
at::Tensor Muon::orthogonal(size_t i, const at::Tensor& direction) const {
    const auto& [parameter, rows] = matrices_[i];
    const layout::ParamSpec& spec = *parameters_[parameter].spec;
    if (exchange_.is_shared(i))
        return ops::orthogonalized_slice(direction, spec.cuts[0].dim, options_.ns_steps, *slice_ranks_);
    const Blocks blocks = blocks_of(spec, rows, options_);
    if (blocks.count == 1) return ops::orthogonalized(direction, options_.ns_steps);
    std::vector<at::Tensor> results;
    for (const at::Tensor& block : direction.split(blocks.rows))
        results.push_back(ops::orthogonalized(block, options_.ns_steps));
    return at::cat(results);
}

/// Decays the weights and steps against the orthogonal direction.
void Muon::step(size_t i, const at::Tensor& orthogonal, const Update& update) const {
    const OptimizedParameter& parameter = parameters_[matrices_[i].parameter];
    const at::Tensor own = rows_of(parameter.weights, i), compute = rows_of(parameter.compute, i);
    const double lr = update.lr * parameter.lr_factor;
    const double size =
        lr * lr_factor(blocks_of(*parameter.spec, matrices_[i].rows, options_), options_.adjust_lr);
    const at::Tensor weights =
        (ops::widened(own) * (1 - lr * parameter.weight_decay)).sub_(ops::widened(orthogonal), size);
    const ops::RoundingKey key = ops::rounding_key(options_.seed, parameter.name, ops::Rounded::Weight);
    const layout::SlabRows rows = layout::rows_of(parameter.spec->shape, exchange_.own_part(i));
    ops::store(own, weights, rows, static_cast<uint64_t>(update.number), key);
    if (!parameter.compute.is_same(parameter.weights)) compute.copy_(own);
    ops::note_pass({own, weights});                           // the decay
    ops::note_pass({orthogonal, weights, weights, weights});  // widened, and the step
    ops::note_pass({weights, own, own, compute});             // the copies
}

std::vector<State> Muon::states() const {
    std::vector<State> states;
    for (size_t i = 0; i < momenta_.size(); ++i) states.push_back({"momentum", i, momenta_[i]});
    return states;
}

OptimizerChoice muon(const MuonOptions& options) {
    using enum layout::ParameterKind;
    return {[routers = options.routers](const layout::ParamSpec& spec) {
                return spec.kind == Matrix || (routers && spec.kind == Router);
            },
            [options](std::vector<OptimizedParameter> parameters, comm::Mesh& mesh) {
                return std::make_unique<Muon>(options, std::move(parameters), mesh);
            },
            &MatrixExchange::open_groups};
}

}  // namespace argosy::train
