// Memory for the parameters of a unit. Those of a join lie one behind the other in one allocation where the
// shard group is one rank; where it is larger, they come together in what is gathered (UnitLayout), and each
// piece has an allocation of its own.
#pragma once

#include <vector>

#include "mesh/mesh.h"
#include "model/parameter.h"
#include "parallel/sharded_parameter.h"
#include "parallel/sharded_unit.h"

namespace argosy::parallel {

class UnitMemory {
  public:
    /// Allocates for the joins. REQUIRES: mesh outlives it.
    UnitMemory(const std::vector<model::Parameter>& unit, const mesh::Mesh& mesh, const Precision& precision);

    /// REQUIRES: called in the unit's order, once for each parameter, but not for one that another unit
    /// holds.
    ParameterMemory next(const model::Parameter& parameter);

    JoinedMemory joined() const;

  private:
    struct Join {
        std::vector<int64_t> shape;  // of all; empty: none here
        ParameterMemory memory;
        int64_t rows_given = 0;
    };
    std::vector<int64_t> shape_of(const model::Parameter& parameter) const;

    const mesh::Mesh& mesh_;
    Precision precision_;
    model::ByKey<model::Join, model::kNumJoins, Join> joins_;
};

}  // namespace argosy::parallel
