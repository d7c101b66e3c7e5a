// Makes the feed-forward matrices of every block a second set of parameters, with shard axes of its own. The
// linker sends calls of parallel::place_parameters() from other rooms here (wrap_placement in
// CMakeLists.txt).
#pragma once

#include "layout/mesh_shape.h"

namespace argosy::testing {

/// While it lives, the second set is sharded over `shards`, which outlive it.
struct SecondSets {
    explicit SecondSets(const layout::AxisSet& shards);
    ~SecondSets();
};

}  // namespace argosy::testing
