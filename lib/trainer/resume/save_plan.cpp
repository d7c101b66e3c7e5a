#include "resume/save_plan.h"

#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "checkpoint/table.h"
#include "comm/values.h"
#include "gpu/device.h"
#include "gpu/element_type.h"
#include "parallel/placement.h"

namespace argosy::resume {
namespace {

using checkpoint::CutTensor;
using checkpoint::GridCut;
using layout::Axis;
using layout::AxisSet;
using layout::MeshShape;
using layout::ParamSpec;

/// The axes of the grid of a save whose tensors are all cut over these axes, one after the other.
constexpr std::array<AxisSet, 4> kDenseGrid = {Axis::Pipeline, Axis::Tensor, parallel::kDenseShards,
                                               Axis::Replicate};

/// The axes of the grid of any other save. A set of the axes between pipeline and replicate numbers its ranks
/// as MeshShape::index() does, because these axes have the mesh's order.
constexpr std::array<AxisSet, 6> kJointGrid = {Axis::Pipeline, layout::kOuterShards, layout::kInnerShards,
                                               Axis::Context,  Axis::Tensor,         Axis::Replicate};

std::vector<int> grid_of(const auto& grid_axes, const MeshShape& mesh) {
    std::vector<int> grid;
    for (const AxisSet axes : grid_axes) grid.push_back(mesh.degree(axes));
    return grid;
}

/// `axes` as axes of kJointGrid.
std::vector<int> joint_axes(AxisSet axes) {
    std::vector<int> numbers;
    for (int i = 0; i < std::ssize(kJointGrid); ++i) {
        if (axes.has(kJointGrid[i])) numbers.push_back(i);
    }
    return numbers;
}

/// Whether each cut is one over axes of kDenseGrid.
bool is_dense(const CutTensor& tensor) {
    return std::ranges::equal(tensor.cuts, kDenseGrid, {}, &GridCut::axes, joint_axes);
}

/// Chooses writers by a tensor's name: one of `count` writers with each call of of(). All ranks choose the
/// same writers, and small tensors are spread over the writers.
class Choice {
  public:
    explicit Choice(const std::string& name) : key_(name_key(name)) {}
    int of(int count) {
        const auto chosen = static_cast<int>(key_ % static_cast<uint64_t>(count));
        key_ /= static_cast<uint64_t>(count);
        return chosen;
    }

  private:
    uint64_t key_;
};

bool is_over(const layout::Cut& cut, AxisSet axes, const MeshShape& mesh) {
    return mesh.used(cut.axes) == mesh.used(axes);
}

/// The sets of axes that divide the parameter, in order, between the pipeline axis and the replicate axis.
/// Each axis is in one set. A parameter that fits kDenseGrid has the sets of that grid.
std::vector<AxisSet> sets_of(const ParamSpec& spec, const MeshShape& mesh) {
    std::vector<AxisSet> sets = {Axis::Tensor, parallel::kDenseShards};
    const auto is_known = [&](const layout::Cut& cut) {
        return is_over(cut, sets[0], mesh) || is_over(cut, sets[1], mesh);
    };
    const bool in_order =
        spec.cuts.size() < 2 || (spec.cuts.size() == 2 && is_over(spec.cuts[1], sets[1], mesh));
    if (in_order && std::ranges::all_of(spec.cuts, is_known)) return sets;
    sets.clear();
    for (const layout::Cut& cut : spec.cuts) sets.push_back(cut.axes);
    AxisSet others;
    for (const AxisSet axis : kJointGrid) {
        const bool is_between = axis != Axis::Pipeline && axis != Axis::Replicate;
        const auto count = std::ranges::count_if(sets, [&](AxisSet set) { return set.has(axis); });
        ARGOSY_CHECK(count <= (is_between ? 1 : 0),
                     "{}: {} of its cuts are over {}, but a save has {} at most", spec.name, count,
                     axis.name(), is_between ? "one" : "none");
        if (is_between && count == 0) others.add(axis);
    }
    if (!others.empty()) sets.push_back(others);
    return sets;
}

/// The cut of the parameter over `axes`. If the parameter is not cut over `axes`, all writers of these axes
/// hold the same slab, and one of them writes it.
GridCut cut_over(const ParamSpec& spec, AxisSet axes, const MeshShape& mesh, Choice& choice) {
    const auto cut =
        std::ranges::find_if(spec.cuts, [&](const layout::Cut& each) { return is_over(each, axes, mesh); });
    if (cut == spec.cuts.end()) return {.first = choice.of(mesh.degree(axes)), .axes = joint_axes(axes)};
    return {.dim = cut->dim,
            .parts = cut->parts,
            .first = choice.of(mesh.degree(axes) / cut->parts),
            .axes = joint_axes(axes)};
}

/// The pipeline rank that writes the parameter. A parameter that embedding and head share may be on two.
int pipeline_rank(const ParamSpec& spec, Choice& choice) {
    return spec.pipeline_ranks[choice.of(static_cast<int>(spec.pipeline_ranks.size()))];
}

/// The cut over the ranks of the replicate axis, which hold the same slab. They share the rows of the
/// tensor's largest slab if the parts are large enough (kMinSlabBytes) and equal, so that one view can map
/// all parts. Otherwise one of them writes the slab.
GridCut cut_over_replicas(const CutTensor& tensor, int degree, Choice& choice) {
    layout::Slab largest = layout::whole(tensor.info.shape);
    for (const GridCut& cut : tensor.cuts) largest = checkpoint::chunk_of(std::move(largest), cut, 0);
    const int64_t num_bytes = largest.num_elements() * size_bytes(tensor.info.type);
    const bool shared = degree > 1 && !largest.size.empty() && largest.size[0] % degree == 0 &&
                        num_bytes / degree >= kMinSlabBytes;
    return shared ? GridCut{.parts = degree} : GridCut{.first = choice.of(degree)};
}

constexpr int64_t kAlignmentBytes = 64;  // alignment of each slab in the copy: a cache line

}  // namespace

checkpoint::SavePlan save_plan(std::vector<CutTensor> tensors, const MeshShape& mesh) {
    if (!std::ranges::all_of(tensors, is_dense)) return {grid_of(kJointGrid, mesh), std::move(tensors)};
    for (CutTensor& tensor : tensors)
        for (GridCut& cut : tensor.cuts) cut.axes.clear();
    return {grid_of(kDenseGrid, mesh), std::move(tensors)};
}

int writer_of(const checkpoint::SavePlan& plan, const MeshShape& mesh,
              const layout::Coordinates& coordinates) {
    const auto number_in = [&](const auto& grid_axes) {
        int writer = 0;
        for (const AxisSet axes : grid_axes)
            writer = writer * mesh.degree(axes) + mesh.index(coordinates, axes);
        return writer;
    };
    return plan.names_axes() ? number_in(kJointGrid) : number_in(kDenseGrid);
}

CutTensor cut_tensor(const checkpoint::TensorInfo& tensor, const ParamSpec& spec, const MeshShape& mesh) {
    Choice choice(tensor.name);
    CutTensor result{.info = tensor,
                     .cuts = {{.first = pipeline_rank(spec, choice), .axes = joint_axes(Axis::Pipeline)}}};
    for (const AxisSet axes : sets_of(spec, mesh)) result.cuts.push_back(cut_over(spec, axes, mesh, choice));
    GridCut replicas = cut_over_replicas(result, mesh.degree(Axis::Replicate), choice);
    replicas.axes = joint_axes(Axis::Replicate);
    result.cuts.push_back(std::move(replicas));
    return result;
}

std::vector<CutTensor> gather_tensors(const std::vector<CutTensor>& own, const MeshShape& mesh,
                                      comm::Communicator& control) {
    const std::string own_plan = checkpoint::to_json(checkpoint::SavePlan{grid_of(kJointGrid, mesh), own});
    std::vector<CutTensor> all;
    std::set<std::string> names;
    for (int rank = 0; rank < mesh.degree(Axis::Pipeline); ++rank) {
        layout::Coordinates first{};
        first[static_cast<int>(Axis::Pipeline)] = rank;
        const std::string plan = comm::broadcast_text(control, own_plan, mesh.rank(first));
        for (CutTensor& tensor : checkpoint::parse_plan(plan, "the plan of a save").tensors)
            if (names.insert(tensor.info.name).second) all.push_back(std::move(tensor));
    }
    return all;
}

std::vector<HeldSlab> written_slabs(std::span<const HeldSlab> held, const checkpoint::SavePlan& plan,
                                    int writer) {
    std::map<std::string_view, const HeldSlab*> by_name;
    for (const HeldSlab& each : held) by_name[each.tensor.name] = &each;
    std::vector<HeldSlab> slabs;
    for (checkpoint::TensorSlab& written : checkpoint::slabs_of(plan, writer)) {
        const auto found = by_name.find(written.tensor.name);
        ARGOSY_CHECK(found != by_name.end(), "{} is on another rank", written.tensor.name);
        const layout::Slab &own = found->second->slab, &slab = written.slab;
        const at::Tensor& elements = found->second->elements;
        ARGOSY_CHECK(elements.is_contiguous() && layout::intersection(own, slab) == slab &&
                         std::equal(slab.size.begin() + 1, slab.size.end(), own.size.begin() + 1),
                     "{}: {} of {} are no rows of {} of {}", written.tensor.name, slab.offset, slab.size,
                     own.offset, own.size);
        const at::Tensor rows = elements.narrow(0, slab.offset[0] - own.offset[0], slab.size[0]);
        slabs.push_back({std::move(written), rows});
    }
    return slabs;
}

// A GPU copies many times faster to pinned memory than to pageable memory.
void ShardCopy::make_room(int64_t num_bytes, bool from_gpu) {
    if (num_bytes <= num_bytes_) return;
    num_bytes_ = 0;  // stays 0 if the allocation throws
    pinned_.reset();
    pageable_.reset();
    if (from_gpu) {
        try {
            memory_ = pinned_.emplace(num_bytes).data();
        } catch (const RunError& error) {
            spdlog::warn("checkpoints are copied from the GPU slowly: {}", error.what());
        }
    }
    if (!pinned_) {
        pageable_ = std::make_unique_for_overwrite<std::byte[]>(num_bytes);
        memory_ = pageable_.get();
    }
    num_bytes_ = num_bytes;
}

std::vector<std::span<const std::byte>> ShardCopy::copy(const std::vector<HeldSlab>& slabs) {
    int64_t num_bytes = 0;
    for (const HeldSlab& slab : slabs) num_bytes += round_up(slab.num_bytes(), kAlignmentBytes);
    const bool from_gpu = !slabs.empty() && gpu::holds(slabs[0].elements);
    make_room(num_bytes, from_gpu);
    if (from_gpu && !on_gpu_) on_gpu_.emplace();
    const auto keeps_type = [](const HeldSlab& slab) {
        return slab.elements.scalar_type() == gpu::scalar_type(slab.tensor.type);
    };
    const bool aside = from_gpu && std::ranges::all_of(slabs, keeps_type);
    if (aside) {
        on_gpu_->begun.record(cuda::StreamView(gpu::current_stream()));
        cuda::StreamView(on_gpu_->stream).wait(on_gpu_->begun);
    }
    std::vector<std::span<const std::byte>> copies;
    std::byte* next = memory_;
    for (const HeldSlab& slab : slabs) {
        const int64_t bytes = slab.num_bytes();
        if (aside) {
            cuda::copy_to_host({next, static_cast<size_t>(bytes)},
                               static_cast<const std::byte*>(slab.elements.const_data_ptr()),
                               on_gpu_->stream);
        } else {
            at::from_blob(next, slab.elements.sizes(), *gpu::scalar_type(slab.tensor.type))
                .copy_(slab.elements, /*non_blocking=*/true);
        }
        copies.emplace_back(next, bytes);
        next += round_up(bytes, kAlignmentBytes);
    }
    under_way_ = from_gpu;
    if (from_gpu)
        on_gpu_->copied.record(aside ? cuda::StreamView(on_gpu_->stream)
                                     : cuda::StreamView(gpu::current_stream()));
    return copies;
}

void ShardCopy::before_change() {
    if (std::exchange(under_way_, false)) cuda::StreamView(gpu::current_stream()).wait(on_gpu_->copied);
}

void ShardCopy::wait() {
    while (on_gpu_ && !on_gpu_->copied.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    under_way_ = false;
}

}  // namespace argosy::resume
