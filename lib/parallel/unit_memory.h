// Memory for the parameters of a unit. If the shard group has one rank, the parameters of a join
// (model::Join) are adjacent in one allocation. If the shard group is larger, each shard has its own
// allocation, and the parameters of a join become adjacent in the gathered buffer (UnitLayout).
#pragma once

#include <vector>

#include "comm/mesh.h"
#include "model/parameter.h"
#include "parallel/sharded_parameter.h"
#include "parallel/sharded_unit.h"

namespace argosy::parallel {

class UnitMemory {
  public:
    /// Allocates the memory of the joins. REQUIRES: mesh outlives the object.
    UnitMemory(const std::vector<model::Parameter>& unit, const comm::Mesh& mesh, const Precision& precision);

    /// Returns the memory of the next parameter. REQUIRES: called in the unit's order, once for each
    /// parameter, except for a tied parameter that another unit already has.
    ParameterMemory next(const model::Parameter& parameter);

    /// The joined tensors; undefined where the unit has no such join or the shard group is larger than 1.
    JoinedMemory joined() const;

  private:
    struct Join {
        std::vector<int64_t> shape;  // shape of all parameters together; empty if there is no such join
        ParameterMemory memory;
        int64_t rows_given = 0;  // rows of `memory` that next() has returned
    };
    std::vector<int64_t> shape_of(const model::Parameter& parameter) const;

    const comm::Mesh& mesh_;
    Precision precision_;
    model::ByKey<model::Join, model::kNumJoins, Join> joins_;
};

}  // namespace argosy::parallel
