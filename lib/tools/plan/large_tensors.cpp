#include "plan/large_tensors.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/units.h"
#include "model/head.h"
#include "ops/numerics.h"
#include "parallel/lowering.h"
#include "parallel/product_casts.h"
#include "setup/number_types.h"

namespace argosy::plan {
namespace {

using model::Parameter;
using model::Role;
using Shape = std::vector<int64_t>;

/// The number of bytes that LibTorch's allocator requests from CUDA for a tensor of `bytes`: a multiple of 2
/// MiB. Empty below 10 MiB: smaller tensors share blocks of two fixed sizes, which do not identify a tensor.
std::optional<int64_t> rounded_as_on_a_gpu(int64_t bytes) {
    constexpr int64_t kStep = 2 << 20, kMinBytes = 10 << 20;
    if (bytes < kMinBytes) return std::nullopt;
    return round_up(bytes, kStep);
}

/// Joins names as in "weights, gradient or moments".
std::string either(const std::vector<std::string>& names) {
    if (names.size() == 1) return names[0];
    return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

class LargeTensors {
  public:
    LargeTensors(const train::TrainerOptions& options, const comm::Mesh& mesh)
        : options_(options), mesh_(mesh) {}

    std::vector<LargeTensor> list() {
        const parallel::ModelPlacement placement = place_parameters(options_, mesh_.shape());
        add("the residual stream", {own_rows(), options_.spec.dim}, compute());
        for (size_t unit = 0; unit < placement.units.size(); ++unit) {
            const bool own = placement.rank_of(unit) == mesh_.coordinate(layout::Axis::Pipeline);
            if (own) add_unit(placement.units[unit]);
        }
        return std::move(list_);
    }

  private:
    at::ScalarType compute() const { return options_.model.precision.compute; }
    at::ScalarType compute(Role role, const std::set<Role>& in_float8) const {
        return in_float8.contains(role) ? at::ScalarType::Float8_e4m3fn : compute();
    }
    int64_t tokens() const {
        return options_.model.microbatch_size * options_.model.seq_len / mesh_.degree(layout::Axis::Context);
    }
    /// The rows between layers.
    int64_t own_rows() const { return layout::chunk(tokens(), mesh_.degree(layout::Axis::Tensor), 0).size; }

    void add(std::string name, Shape shape, at::ScalarType type) {
        auto found = std::ranges::find_if(
            list_, [&](const LargeTensor& one) { return one.shape == shape && one.type == type; });
        if (found == list_.end()) found = list_.insert(list_.end(), {{}, std::move(shape), type});
        if (std::ranges::find(found->names, name) == found->names.end()) {
            found->names.push_back(std::move(name));
        }
    }

    /// Adds the tensors of a unit. Equal layers are listed once, under the names of the first of them.
    void add_unit(const std::vector<Parameter>& unit) {
        const auto recipes = parallel::recipes_of(unit, options_.model.casts, mesh_.shape());
        const std::set<Role> in_float8 = parallel::roles_in_float8(unit, recipes, options_.model.casts);
        std::vector<parallel::UnitLayout::Parameter> parameters;
        std::map<at::ScalarType, std::vector<parallel::UnitLayout::Parameter>> by_type;
        model::ByRole<int64_t> rows;
        for (const Parameter& parameter : unit) {
            const Shape shape = parallel::unsharded_shape(parameter.spec, mesh_.shape(), mesh_.coordinates());
            rows[parameter.role] = shape[0];
            parameters.push_back({parameter.role, shape});
            by_type[compute(parameter.role, in_float8)].push_back({parameter.role, shape});
        }
        add_activations(rows);
        add_casts(rows, recipes);
        add_parameters(unit, in_float8);
        const int num_shards = mesh_.degree(layout::kShardAxes);
        if (num_shards == 1) return;
        const int64_t buffer_elements = parallel::UnitLayout(parameters, num_shards).num_elements();
        const std::string name = unit[0].role == Role::Embedding   ? "the embedding"
                                 : unit[0].role == Role::FinalNorm ? "the head"
                                                                   : "a layer";
        for (const auto& [type, of_type] : by_type) {
            const int64_t elements = parallel::UnitLayout(of_type, num_shards).num_elements();
            add("the gathered weights of " + name, {elements}, type);
        }
        const auto add_gradients = [&](at::ScalarType type) {
            add("the gradients of " + name + ", of all shards", {buffer_elements}, type);
        };
        add_gradients(options_.model.precision.reduce);
        const bool pipelined = parallel::reduce_after(mesh_.shape()) == parallel::ReduceAfter::Step;
        if (pipelined)
            add_gradients(options_.model.precision.gradient());  // with a copy for the reduction if in bf16
    }

    /// Adds the outputs of a unit's matrix products and other tensors of the same shapes. `rows`: the number
    /// of rows of each matrix of the unit, which is the number of columns of the output; 0 for a role that
    /// the unit does not have.
    void add_activations(const model::ByRole<int64_t>& rows) {
        const auto activation = [&](const char* name, int64_t columns) {
            if (columns > 0) add(name, {tokens(), columns}, compute());
        };
        activation("a layer's q, k and v", rows[Role::Wq] + rows[Role::Wk] + rows[Role::Wv]);
        activation("a layer's attention output or gradient of q", rows[Role::Wq]);
        activation("a layer's gradient of k or v", rows[Role::Wk]);
        activation("a layer's gate and up", rows[Role::Gate] + rows[Role::Up]);
        activation("a layer's activation", rows[Role::Gate]);
        if (rows[Role::Output] == 0) return;
        const int64_t columns =
            layout::chunk(options_.spec.vocab_size, mesh_.degree(layout::Axis::Tensor), 0).size;
        const at::Tensor here = at::empty({0}, at::TensorOptions(mesh_.device()));
        const int64_t chunk_rows = model::Head::rows_per_chunk(tokens(), columns, here);
        add("a chunk of logits", {chunk_rows, rows[Role::Output]}, compute());
        const int num_ranks = mesh_.degree(layout::Axis::Tensor);
        if (num_ranks > 1 && options_.model.tensor.gather_logits) {
            add("a chunk of all ranks' logits", {chunk_rows, num_ranks * columns}, compute());
        }
    }

    /// Adds the casts of the products' inputs that layers keep from forward to backward.
    void add_casts(const model::ByRole<int64_t>& rows, const model::ByRole<const ops::Recipe*>& recipes) {
        const auto cast = [&](const char* name, Role role, int64_t num_rows, int64_t columns) {
            const ops::Recipe* recipe = recipes[role];
            if (recipe != nullptr && recipe->shares_x())
                add(name, {num_rows, columns}, recipe->forward.left.type);
        };
        for (const Role role : {Role::Wq, Role::Gate})
            cast("the cast input of a layer", role, own_rows(), options_.spec.dim);
        cast("a layer's cast attention output", Role::Wo, tokens(), rows[Role::Wq]);
        cast("a layer's cast activation", Role::Down, tokens(), rows[Role::Gate]);
    }

    /// For each element type, the kinds of tensors (weights, gradient, ...) that have this type.
    using Held = std::map<at::ScalarType, std::vector<std::string>>;

    Held weights_and_gradient(at::ScalarType computed) const {
        const at::ScalarType master = options_.model.precision.master;
        Held held = {{master, {"weights"}}};
        if (computed != master) held[computed].push_back("copy for computation");
        held[options_.model.precision.gradient()].push_back("gradient");
        return held;
    }

    void add_moments(Held& held) const {
        const at::ScalarType master = options_.model.precision.master;
        held[options_.step.adamw.moments.value_or(ops::accumulation_type(master))].push_back("moments");
    }

    void add_held(const Held& held, const Shape& shape, const std::string& name) {
        for (const auto& [type, what] : held) {
            add(fmt::format("the {} of {}", either(what), name), shape, type);
        }
    }

    /// Adds the weights, gradients and moments of a unit. If there is one shard, the weights of the
    /// parameters of a join are one allocation, and so are their gradients (UnitMemory). Each parameter has
    /// its own moments.
    void add_parameters(const std::vector<Parameter>& unit, const std::set<Role>& in_float8) {
        const bool shared = mesh_.degree(layout::kShardAxes) == 1;
        for (size_t first = 0, count = 0; first < unit.size(); first += count) {
            const auto join = shared ? model::join_of(unit[first].role) : std::nullopt;
            count = join ? model::roles_of(*join).size() : 1;
            add_matrices(std::span(unit).subspan(first, count), compute(unit[first].role, in_float8));
        }
    }

    void add_matrices(std::span<const Parameter> matrices, at::ScalarType computed) {
        if (!matrices[0].spec.is_matrix) return;
        Shape all = {0};
        for (const Parameter& parameter : matrices) {
            Shape shape = parallel::shard_shape(parameter.spec, mesh_.shape(), mesh_.coordinates());
            const bool seen = !seen_.insert({parameter.role, shape}).second;
            if (seen) return;
            Held held = matrices.size() == 1 ? weights_and_gradient(computed) : Held();
            add_moments(held);
            add_held(held, shape, parameter.spec.name);
            shape[0] += all[0];
            all = std::move(shape);
        }
        std::string names = matrices.front().spec.name;
        if (matrices.size() > 1) {
            names += " to " + matrices.back().spec.name;
            add_held(weights_and_gradient(computed), all, names);
        }
        if (options_.model.precision.bf16_gradients) add_wide_gradients(matrices, all, names);
    }

    /// Adds the fp32 tensors beside gradients in bf16: sums over ranks, and gradients before they are
    /// rounded. `all`: the shape of all matrices together.
    void add_wide_gradients(std::span<const Parameter> matrices, Shape all, const std::string& names) {
        const bool sharded = mesh_.degree(layout::kShardAxes) > 1;
        if (sharded || mesh_.degree(layout::Axis::Replicate) > 1) {
            for (const Parameter& parameter : matrices) {
                add("the sum over ranks of the gradient of " + parameter.spec.name,
                    parallel::shard_shape(parameter.spec, mesh_.shape(), mesh_.coordinates()),
                    options_.model.precision.reduce);
            }
        }
        if (sharded) return;
        const at::Tensor here = at::empty({0}, at::TensorOptions(mesh_.device()));
        all[0] = model::WeightWork::rows_at_once(all[0], all[1], here);
        add("the gradient of " + names + " before it is rounded", all, options_.model.precision.reduce);
    }

    const train::TrainerOptions& options_;
    const comm::Mesh& mesh_;
    std::set<std::pair<Role, Shape>> seen_;
    std::vector<LargeTensor> list_;
};

}  // namespace

std::string type_name(at::ScalarType type) {
    using config::Precision;
    for (const Precision precision :
         {Precision::Float16, Precision::BFloat16, Precision::Float32, Precision::Float64}) {
        if (setup::scalar_type(precision) == type) return std::string(config::name_of(precision));
    }
    return toString(type);
}

std::vector<LargeTensor> large_tensors(const train::TrainerOptions& options, const comm::Mesh& mesh) {
    return LargeTensors(options, mesh).list();
}

std::string names_of_size(std::span<const LargeTensor> tensors, int64_t bytes) {
    std::vector<std::string> found;
    for (const LargeTensor& tensor : tensors) {
        if (tensor.num_bytes() != bytes && rounded_as_on_a_gpu(tensor.num_bytes()) != bytes) continue;
        found.push_back(fmt::format("{} [{}] of {}", either(tensor.names), fmt::join(tensor.shape, ", "),
                                    type_name(tensor.type)));
    }
    return fmt::format("{}", fmt::join(found, ", or of "));
}

}  // namespace argosy::plan
