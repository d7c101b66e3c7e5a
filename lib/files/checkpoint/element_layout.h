// Private to this room: the places of the elements in the shards of a save. A shard has one dataset for
// each element type, with all its elements of this type. The slabs of a tensor begin at the same element in
// all shards, so that one HDF5 selection covers many of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/save_plan.h"
#include "h5/element_type.h"

namespace argosy::checkpoint {

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
