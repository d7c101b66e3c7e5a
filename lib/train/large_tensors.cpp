#include "train/large_tensors.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "model/head.h"
#include "ops/types.h"

namespace argosy::train {
namespace {

using model::Parameter;
using model::Role;
using Shape = std::vector<int64_t>;

/// As the configuration calls it.
std::string name_of(at::ScalarType type) {
    switch (type) {
        case at::kDouble:
            return "float64";
        case at::kFloat:
            return "float32";
        case at::kBFloat16:
            return "bfloat16";
        case at::kHalf:
            return "float16";
        default:
            return toString(type);
    }
}

/// What LibTorch's allocator asks CUDA for: large ones in steps, all others in blocks of one of two sizes,
/// which say nothing of a tensor.
std::optional<int64_t> rounded_as_on_a_gpu(int64_t bytes) {
    constexpr int64_t kStep = 2 << 20, kLeast = 10 << 20;
    if (bytes < kLeast) return std::nullopt;
    return (bytes + kStep - 1) / kStep * kStep;
}

/// "weights, gradient or moments".
std::string either(const std::vector<std::string>& names) {
    if (names.size() == 1) return names[0];
    return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

class LargeTensors {
  public:
    LargeTensors(const TrainerOptions& options, const mesh::Mesh& mesh) : options_(options), mesh_(mesh) {}

    std::vector<LargeTensor> list() {
        const parallel::PlacedModel placed = place(options_, mesh_.shape());
        add("the residual stream", {tokens() / mesh_.degree(mesh::Axis::Tensor), options_.spec.dim},
            compute());
        for (size_t unit = 0; unit < placed.units.size(); ++unit) {
            const int stage = placed.unit_stage[unit] % mesh_.degree(mesh::Axis::Pipeline);
            if (stage == mesh_.coordinate(mesh::Axis::Pipeline)) add_unit(placed.units[unit]);
        }
        return std::move(list_);
    }

  private:
    at::ScalarType compute() const { return options_.precision.compute; }
    int64_t tokens() const { return options_.microbatch_size * options_.seq_len; }

    void add(std::string name, Shape shape, at::ScalarType type) {
        auto found = std::ranges::find_if(
            list_, [&](const LargeTensor& one) { return one.shape == shape && one.type == type; });
        if (found == list_.end()) found = list_.insert(list_.end(), {{}, std::move(shape), type});
        if (std::ranges::find(found->names, name) == found->names.end()) {
            found->names.push_back(std::move(name));
        }
    }

    /// Of several layers the first speaks for all.
    void add_unit(const std::vector<Parameter>& unit) {
        int64_t buffer_elements = 0;
        for (const Parameter& parameter : unit) {
            Shape shape = parallel::unsharded_shape(parameter.spec, mesh_.shape(), mesh_.coordinates());
            const int64_t own_rows = layout::chunk(shape[0], mesh_.degree(mesh::kShardAxes), 0).size;
            add_activations(parameter.role, shape[0]);
            shape[0] = own_rows;
            add_parameter(parameter, shape);
            shape[0] *= mesh_.degree(mesh::kShardAxes);
            buffer_elements += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
        }
        if (mesh_.degree(mesh::kShardAxes) == 1) return;
        const std::string name = unit[0].role == Role::Embedding   ? "the embedding"
                                 : unit[0].role == Role::FinalNorm ? "the head"
                                                                   : "a layer";
        add("the gathered weights of " + name, {buffer_elements}, compute());
        add("the gradients of " + name + ", of all shards", {buffer_elements}, options_.precision.reduce);
    }

    /// What a layer's product with a matrix of so many rows yields, and what has its shape.
    void add_activations(Role role, int64_t rows) {
        const auto activation = [&](const char* name) { add(name, {tokens(), rows}, compute()); };
        if (role == Role::Wq) {
            activation("a layer's q or attention output");
        } else if (role == Role::Wk) {
            activation("a layer's k or v");
        } else if (role == Role::Gate) {
            activation("a layer's gate, up or activation");
        } else if (role == Role::Output) {
            const int64_t columns =
                layout::chunk(options_.spec.vocab_size, mesh_.degree(mesh::Axis::Tensor), 0).size;
            const int64_t most =
                model::Head::rows_per_chunk(columns, at::empty({0}, at::TensorOptions(mesh_.device())));
            add("a chunk of logits", {std::min(tokens(), most), rows}, compute());
        }
    }

    void add_parameter(const Parameter& parameter, const Shape& shape) {
        if (!parameter.spec.is_matrix || !seen_.insert({parameter.role, shape}).second) return;
        const auto& [master, compute, reduce] = options_.precision;
        const auto moments = options_.step.adamw.moments.value_or(ops::accumulation_type(master));
        std::map<at::ScalarType, std::vector<std::string>> held = {{master, {"weights"}}};
        if (compute != master) held[compute].push_back("copy for computation");
        held[reduce].push_back("gradient");
        held[moments].push_back("moments");
        for (const auto& [type, what] : held) {
            add(fmt::format("the {} of {}", either(what), parameter.spec.name), shape, type);
        }
    }

    const TrainerOptions& options_;
    const mesh::Mesh& mesh_;
    std::set<std::pair<Role, Shape>> seen_;
    std::vector<LargeTensor> list_;
};

}  // namespace

int64_t LargeTensor::num_bytes() const {
    return std::accumulate(shape.begin(), shape.end(), static_cast<int64_t>(c10::elementSize(type)),
                           std::multiplies<>());
}

std::vector<LargeTensor> large_tensors(const TrainerOptions& options, const mesh::Mesh& mesh) {
    return LargeTensors(options, mesh).list();
}

std::string names_of_size(std::span<const LargeTensor> tensors, int64_t bytes) {
    std::vector<std::string> found;
    for (const LargeTensor& tensor : tensors) {
        if (tensor.num_bytes() != bytes && rounded_as_on_a_gpu(tensor.num_bytes()) != bytes) continue;
        found.push_back(fmt::format("{} [{}] of {}", either(tensor.names), fmt::join(tensor.shape, ", "),
                                    name_of(tensor.type)));
    }
    return fmt::format("{}", fmt::join(found, ", or of "));
}

}  // namespace argosy::train
