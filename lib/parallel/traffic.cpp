#include "parallel/traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace argosy::parallel {
namespace {

using comm::OpKind;
using layout::Axis;

/// Collects launches, except those over one rank or without elements. Launches that differ only in their
/// number become one entry.
class Collector {
  public:
    explicit Collector(const layout::MeshShape& mesh) : mesh_(mesh) {}

    void add(const Traffic& one) {
        if (mesh_.degree(one.axes) / one.parts == 1 || one.elements == 0) return;
        for (Traffic& other : all_) {
            Traffic alike = one;
            alike.num_launches = other.num_launches;
            if (alike != other) continue;
            other.num_launches += one.num_launches;
            return;
        }
        all_.push_back(one);
    }

    std::vector<Traffic> take() { return std::move(all_); }

  private:
    const layout::MeshShape& mesh_;
    std::vector<Traffic> all_;
};

/// Number of elements of a rank's shard with its padding.
int64_t shard_elements(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                       const layout::Coordinates& coordinates) {
    return layout::whole(shard_shape(spec, mesh, coordinates)).num_elements();
}

/// Adds a unit's all-gather, its reduce-scatter, and the sum over replicas that the program makes.
void add_unit(const ModelPlacement& placement, size_t unit, const layout::MeshShape& mesh,
              const layout::Coordinates& coordinates, const Precision& precision, Collector& traffic) {
    const std::set<model::Role> roles = summed_roles(placement, unit);
    int64_t elements = 0, summed = 0;
    for (const auto& [role, spec] : placement.units[unit]) {
        const int64_t shard = shard_elements(spec, mesh, coordinates);
        elements += shard * mesh.degree(layout::kShardAxes);
        if (roles.contains(role)) summed += shard;
    }
    traffic.add({layout::kShardAxes, 1, OpKind::AllGather, precision.compute, elements, 1});
    traffic.add({layout::kShardAxes, 1, OpKind::ReduceScatter, precision.reduce, elements, 1});
    traffic.add({Axis::Replicate, 1, OpKind::AllReduce, precision.reduce, summed, 1});
}

/// Adds the transfers of a microbatch's activations: over the tensor axis, and from stage to stage.
void add_activations(const layout::MeshShape& mesh, const Precision& precision, int64_t elements,
                     int64_t num_units, Collector& traffic) {
    traffic.add({Axis::Tensor, 1, OpKind::AllGather, precision.compute, elements, num_units});
    traffic.add({Axis::Tensor, 1, OpKind::ReduceScatter, precision.compute, elements, num_units});
    const int64_t own = elements / mesh.degree(Axis::Tensor);
    traffic.add({Axis::Pipeline, 1, OpKind::Send, precision.compute, own, 1});
}

/// Adds the gradient sums after the program. sum_remaining() (parallel/parallel_model.h) makes all sums over
/// the same ranks in one launch.
void add_sums(const std::vector<layout::ParamSpec>& specs, const layout::MeshShape& mesh,
              const layout::Coordinates& coordinates, const Precision& precision, Collector& traffic) {
    std::map<std::pair<layout::AxisSet, int>, int64_t> sums;
    for (const layout::ParamSpec& spec : specs) {
        const auto& [axes, parts] = spec.gradient;
        if (!axes.empty() && !summed_by_program(spec)) {
            sums[{axes, parts}] += shard_elements(spec, mesh, coordinates);
        }
    }
    for (const auto& [key, elements] : sums) {
        traffic.add({key.first, key.second, OpKind::AllReduce, precision.reduce, elements, 1});
    }
}

}  // namespace

std::vector<Traffic> step_traffic(const ModelPlacement& placement, const layout::MeshShape& mesh,
                                  const layout::Coordinates& coordinates, const Precision& precision,
                                  int64_t dim, int64_t microbatch_tokens) {
    Collector traffic(mesh);
    std::vector<layout::ParamSpec> held;
    int64_t num_units = 0;
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        if (placement.rank_of(unit) != coordinates[static_cast<int>(Axis::Pipeline)]) continue;
        ++num_units;
        add_unit(placement, unit, mesh, coordinates, precision, traffic);
        for (const model::Parameter& parameter : placement.units[unit]) {
            const bool known = std::ranges::any_of(
                held, [&](const layout::ParamSpec& other) { return other.name == parameter.spec.name; });
            if (!known) held.push_back(parameter.spec);  // a tied table is one parameter
        }
    }
    add_activations(mesh, precision, microbatch_tokens * dim, num_units, traffic);
    add_sums(held, mesh, coordinates, precision, traffic);
    return traffic.take();
}

std::vector<Traffic> job_traffic(const ModelPlacement& placement, const layout::MeshShape& mesh,
                                 const Precision& precision, int64_t dim, int64_t microbatch_tokens) {
    std::vector<Traffic> all;
    layout::Coordinates first = {};
    for (int& rank = first[static_cast<int>(Axis::Pipeline)]; rank < mesh.degree(Axis::Pipeline); ++rank) {
        const auto own = step_traffic(placement, mesh, first, precision, dim, microbatch_tokens);
        all.insert(all.end(), own.begin(), own.end());
    }
    return all;
}

}  // namespace argosy::parallel
