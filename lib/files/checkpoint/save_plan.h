// Computes how a save cuts its tensors and which writer holds which slab, without a list of slabs. The
// writers form a grid. Each tensor has a list of cuts, each over one or several axes of the grid: the first
// cuts the tensor into chunks, the second cuts each of these chunks, and so on. A writer holds at most one
// slab of each tensor, which follows from the writer's coordinates in the grid. FORMAT.md describes the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/hash.h"
#include "checkpoint/tensor_source.h"
#include "h5/element_type.h"

namespace argosy::checkpoint {

/// How the axes `axes` of the grid cut a tensor: dim `dim` into `parts` chunks (layout::chunk). The axes
/// count as one axis of `degree` writers, the product of their degrees, whose coordinates are row-major.
/// Coordinate first + i * (degree / parts) holds chunk i; other coordinates hold none.
struct GridCut {
    int dim = 0, parts = 1, first = 0;
    std::vector<int> axes = {};  // ascending; empty: the axis of the cut's number
    bool operator==(const GridCut&) const = default;
};

/// A tensor, and how it is cut.
struct CutTensor {
    TensorInfo info;
    std::vector<GridCut> cuts;  // each axis of the grid is in one of them; all cuts name their axes, or none
    bool operator==(const CutTensor&) const = default;
};

/// All tensors of a save, in the order of the manifest. Writers are numbered row-major in the grid.
struct SavePlan {
    std::vector<int> grid;
    std::vector<CutTensor> tensors;
    int num_writers() const;
    bool names_axes() const;  // whether some cut does: the manifest is then of format 3.0, otherwise of 2.0
    bool operator==(const SavePlan&) const = default;
};

/// A slab, and the tensor that it is cut from.
struct TensorSlab {
    TensorInfo tensor;
    layout::Slab slab;
    int64_t num_bytes() const { return slab.num_elements() * size_bytes(tensor.type); }
};

/// UserError, which begins with `place`, unless the grid and the cuts fit together. REQUIRES: check_info()
/// has accepted every tensor.
void check_plan(const SavePlan& plan, const std::string& place);

/// Identifies a save. `nonce` is random, and the same on all writers of the save. The result depends on the
/// plan too, so that shards are foreign to each other if their writers had different plans.
Hash set_of(const Hash& nonce, const SavePlan& plan);

/// Chunk `index` of `slab`, as `cut` cuts it.
layout::Slab chunk_of(layout::Slab slab, const GridCut& cut, int index);

/// The slab that a writer holds. None if the writer holds no elements of the tensor.
std::optional<layout::Slab> slab_of(const std::vector<int>& grid, const CutTensor& tensor, int writer);

/// All slabs that a writer holds, in the plan's order of the tensors. Each slab has elements.
std::vector<TensorSlab> slabs_of(const SavePlan& plan, int writer);

/// Visits the slabs that share elements with `wanted`, in the order of their chunks of the first cut, then of
/// the second, and so on. The time is proportional to the number of these slabs, not of all writers.
void for_each_slab(const std::vector<int>& grid, const CutTensor& tensor, const layout::Slab& wanted,
                   const std::function<void(int writer, const layout::Slab& slab)>& visit);

/// "shard-00003-of-00008.h5". Shards of more than 1,000 writers are in folders of 1,000, because file systems
/// and tools are slow in large folders: "shards-00012/shard-12345-of-16384.h5".
std::string shard_name(int writer, int num_writers);

/// Private to this room: the axes of cut `number` of a tensor, and the number of writers along these axes.
std::span<const int> axes_of(const CutTensor& tensor, size_t number);
int degree_of(const std::vector<int>& grid, std::span<const int> axes);

/// Private to this room: the places of the elements in the shards of a save. A shard has one dataset for each
/// element type, with all its elements of this type. The slabs of a tensor begin at the same element in all
/// shards, so that one HDF5 selection covers many of them.
struct ElementLayout {
    std::vector<int64_t> begin;  // first element of each tensor's slabs
    /// The number of elements of each writer's dataset, gaps included.
    std::map<ElementType, std::vector<int64_t>, h5::FileOrder> num_elements;
};
ElementLayout element_layout(const SavePlan& plan);

/// "elements/f32": the name of a shard's dataset. In a manifest this is the view of the datasets of all
/// shards, of shape [grid..., longest dataset].
std::string elements_name(ElementType type);

}  // namespace argosy::checkpoint
