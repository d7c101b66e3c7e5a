// How a save cuts its tensors and which writer has which slab, as arithmetic: nobody lists the slabs. The
// writers form a grid. Each tensor is cut along the axes of the grid in their order: axis 0 cuts the tensor,
// axis 1 cuts what axis 0 left, and so on. A writer holds the slab of its coordinates, at most one of each
// tensor. FORMAT.md describes the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hash.h"
#include "checkpoint/tensor_source.h"

namespace argosy::checkpoint {

/// The cut along one axis of the grid, of `degree` writers: tensor dim `dim` into `parts` chunks
/// (layout::chunk). Writer first + i * (degree / parts) of the axis holds chunk i; the others hold none.
struct Cut {
    int dim = 0, parts = 1, first = 0;
    bool operator==(const Cut&) const = default;
};

/// A tensor, and how it is cut.
struct CutTensor {
    TensorInfo info;
    std::vector<Cut> cuts;  // one for each axis of the grid
    bool operator==(const CutTensor&) const = default;
};

/// All tensors of a save, in the order of the manifest. Writers are numbered row-major in the grid.
struct Plan {
    std::vector<int> grid;
    std::vector<CutTensor> tensors;
    int num_writers() const;
    bool operator==(const Plan&) const = default;
};

/// A slab, and the tensor that it is cut from.
struct TensorSlab {
    TensorInfo tensor;
    layout::Slab slab;
    int64_t num_bytes() const { return slab.num_elements() * size_bytes(tensor.type); }
};

/// UserError, which begins with `place`, unless the grid and the cuts fit together. REQUIRES: valid infos.
void check_plan(const Plan& plan, const std::string& place);

/// Identifies a save. `nonce` is random and the same on all its writers. The result depends on the plan too,
/// so that shards of writers that disagree about the plan are foreign to each other.
Hash set_of(const Hash& nonce, const Plan& plan);

/// Chunk `index` of `slab` along one axis of the grid.
layout::Slab chunk_of(layout::Slab slab, const Cut& cut, int index);

/// The slab that a writer holds; none if it holds no elements of the tensor.
std::optional<layout::Slab> slab_of(const std::vector<int>& grid, const CutTensor& tensor, int writer);

/// The slabs of a writer, in the plan's order; each has elements.
std::vector<TensorSlab> slabs_of(const Plan& plan, int writer);

/// Visits the slabs that share elements with `wanted`, by cut from the first to the last axis. Takes time in
/// proportion to these slabs, not to the writers.
void for_each_slab(const std::vector<int>& grid, const CutTensor& tensor, const layout::Slab& wanted,
                   const std::function<void(int writer, const layout::Slab& slab)>& visit);

/// The places of the elements in the shards. Each shard has one dataset of all its elements of a type. The
/// slabs of a tensor begin at the same element in all shards, so that one selection finds many of them.
struct ElementLayout {
    std::vector<int64_t> begin;  // of each tensor's slabs
    std::map<ElementType, std::vector<int64_t>, h5::FileOrder>
        num_elements;  // of the datasets, by writer; gaps included
};
ElementLayout element_layout(const Plan& plan);

/// "shard-00003-of-00008.h5"; with more than 1,000 writers in folders of 1,000,
/// "shards-00012/shard-12345-of-16384.h5", since file systems and tools are slow in large folders.
std::string shard_name(int writer, int num_writers);

/// "elements/f32": the dataset of a shard, and in a manifest the view of all shards' datasets, [grid...,
/// longest].
std::string elements_name(ElementType type);

}  // namespace argosy::checkpoint
