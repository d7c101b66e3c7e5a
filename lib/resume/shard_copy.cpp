#include "resume/shard_copy.h"

#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "checkpoint/slab_bytes.h"
#include "gpu/device.h"
#include "resume/joint_work.h"
#include "setup/element_types.h"

namespace argosy::resume {
namespace {

constexpr int64_t kAlignmentBytes = 64;  // start of each part in the copy: a cache line

int64_t aligned(int64_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

using checkpoint::Cut;
using checkpoint::PlacedTensor;
using layout::Axis;
using layout::MeshShape;
using layout::ParamSpec;
using nlohmann::json;

/// Chooses one of several writers at a time by a tensor's name, so that all ranks choose the same and small
/// tensors are spread.
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

/// The cut that the splits over `axes` make; without such a split all writers of the axis hold the same.
Cut cut_over(const ParamSpec& spec, layout::AxisSet axes, int degree, Choice& choice) {
    const auto split = std::ranges::find(spec.splits, axes, &layout::Split::axes);
    if (split == spec.splits.end()) return {.first = choice.of(degree)};
    return {.dim = split->dim, .parts = split->parts, .first = choice.of(degree / split->parts)};
}

/// The pipeline rank that writes: a tied parameter is on two.
int pipeline_rank(const ParamSpec& spec, const MeshShape& mesh, Choice& choice) {
    std::set<int> ranks;
    for (const int stage : spec.stages) ranks.insert(stage % mesh.degree(Axis::Pipeline));
    return *std::next(ranks.begin(), choice.of(static_cast<int>(ranks.size())));
}

/// Whether replicas of the largest box share its rows: only in equal parts, which one view of all parts can
/// map.
Cut cut_over_replicas(const PlacedTensor& tensor, int degree, Choice& choice) {
    std::vector<int64_t> box = tensor.info.shape;
    for (const Cut& cut : tensor.cuts)
        if (cut.parts > 1) box[cut.dim] = layout::chunk(box[cut.dim], cut.parts, 0).size;
    int64_t num_bytes = h5::size_bytes(tensor.info.type);
    for (const int64_t extent : box) num_bytes *= extent;
    const bool shared =
        degree > 1 && !box.empty() && box[0] % degree == 0 && num_bytes / degree >= kMinPartBytes;
    return shared ? Cut{.parts = degree} : Cut{.first = choice.of(degree)};
}

/// [[name, type, shape, [[dim, parts, first], ...]], ...]
std::string to_text(const std::vector<PlacedTensor>& tensors) {
    json list = json::array();
    for (const PlacedTensor& tensor : tensors) {
        json cuts = json::array();
        for (const Cut& cut : tensor.cuts) cuts.push_back({cut.dim, cut.parts, cut.first});
        list.push_back({tensor.info.name, h5::name(tensor.info.type), tensor.info.shape, cuts});
    }
    return list.dump();
}

std::vector<PlacedTensor> parse_tensors(const std::string& text) {
    std::vector<PlacedTensor> tensors;
    for (const json& each : json::parse(text)) {
        const auto type = h5::element_type_named(each[1].get<std::string>());
        PlacedTensor& tensor = tensors.emplace_back();
        tensor.info = {each[0].get<std::string>(), type.value(), each[2].get<std::vector<int64_t>>()};
        for (const json& cut : each[3])
            tensor.cuts.push_back({cut[0].get<int>(), cut[1].get<int>(), cut[2].get<int>()});
    }
    return tensors;
}

}  // namespace

std::vector<ShardPart> shard_parts(std::span<const HeldTensor> tensors, const checkpoint::Plan& plan,
                                   int writer) {
    std::map<std::string_view, const HeldTensor*> by_name;
    for (const HeldTensor& held : tensors) by_name[held.info.name] = &held;
    std::vector<ShardPart> parts;
    for (checkpoint::Piece& piece : checkpoint::pieces_of(plan, writer)) {
        const auto found = by_name.find(piece.tensor.name);
        ARGOSY_CHECK(found != by_name.end(), "{} is on another rank", piece.tensor.name);
        const HeldTensor& held = *found->second;
        const layout::Slab& slab = piece.slab;
        ARGOSY_CHECK(held.rows.is_contiguous() && checkpoint::intersection(held.slab, slab) == slab &&
                         std::equal(slab.size.begin() + 1, slab.size.end(), held.slab.size.begin() + 1),
                     "{}: {} of {} are no rows of {} of {}", held.info.name, slab.offset, slab.size,
                     held.slab.offset, held.slab.size);
        const at::Tensor rows = held.rows.narrow(0, slab.offset[0] - held.slab.offset[0], slab.size[0]);
        parts.push_back({std::move(piece), rows});
    }
    return parts;
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

std::vector<std::span<const std::byte>> ShardCopy::copy(const std::vector<ShardPart>& parts) {
    int64_t num_bytes = 0;
    for (const ShardPart& part : parts) num_bytes += aligned(part.piece.num_bytes());
    make_room(num_bytes, !parts.empty() && gpu::holds(parts[0].rows));
    std::vector<std::span<const std::byte>> copies;
    std::byte* next = memory_;
    for (const ShardPart& part : parts) {
        const int64_t bytes = part.piece.num_bytes();
        at::from_blob(next, part.rows.sizes(), *setup::scalar_type(part.piece.tensor.type))
            .copy_(part.rows, /*non_blocking=*/true);
        copies.emplace_back(next, bytes);
        next += aligned(bytes);
    }
    gpu::synchronize();
    return copies;
}

std::vector<int> writer_grid(const MeshShape& mesh) {
    return {mesh.degree(Axis::Pipeline), mesh.degree(Axis::Tensor), mesh.degree(layout::kShardAxes),
            mesh.degree(Axis::Replicate)};
}

int writer_of(const MeshShape& mesh, const layout::Coordinates& coordinates) {
    int writer = 0;
    for (const layout::AxisSet axes : {layout::AxisSet(Axis::Pipeline), layout::AxisSet(Axis::Tensor),
                                       layout::kShardAxes, layout::AxisSet(Axis::Replicate)})
        writer = writer * mesh.degree(axes) + mesh.index(coordinates, axes);
    return writer;
}

PlacedTensor placed_tensor(const checkpoint::TensorInfo& info, const ParamSpec& spec, const MeshShape& mesh) {
    const auto is_known = [](const layout::Split& split) {
        return split.axes == layout::AxisSet(Axis::Tensor) || split.axes == layout::kShardAxes;
    };
    const bool in_order =
        spec.splits.size() < 2 || (spec.splits.size() == 2 && spec.splits[1].axes == layout::kShardAxes);
    ARGOSY_CHECK(in_order && std::ranges::all_of(spec.splits, is_known), "{} is split in another way",
                 spec.name);
    Choice choice(info.name);
    PlacedTensor tensor{.info = info, .cuts = {{.first = pipeline_rank(spec, mesh, choice)}}};
    tensor.cuts.push_back(cut_over(spec, Axis::Tensor, mesh.degree(Axis::Tensor), choice));
    tensor.cuts.push_back(cut_over(spec, layout::kShardAxes, mesh.degree(layout::kShardAxes), choice));
    tensor.cuts.push_back(cut_over_replicas(tensor, mesh.degree(Axis::Replicate), choice));
    return tensor;
}

std::vector<PlacedTensor> gather_tensors(const std::vector<PlacedTensor>& own, const MeshShape& mesh,
                                         comm::Communicator& control) {
    std::vector<PlacedTensor> all;
    std::set<std::string> names;
    for (int stage = 0; stage < mesh.degree(Axis::Pipeline); ++stage) {
        layout::Coordinates first{};
        first[static_cast<int>(Axis::Pipeline)] = stage;
        for (PlacedTensor& tensor : parse_tensors(broadcast_text(control, to_text(own), mesh.rank(first))))
            if (names.insert(tensor.info.name).second) all.push_back(std::move(tensor));
    }
    return all;
}

}  // namespace argosy::resume
