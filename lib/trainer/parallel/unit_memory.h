// The memory of a unit's parameters. The parameters of a join (model::Place) are adjacent, so that one
// matrix product computes all of them. If a join's set is on one rank, UnitMemory allocates the join's
// parameters in one piece. If the set is sharded, each shard has its own allocation. UnitLayout
// then makes the parameters adjacent in the buffers of gathered weights and of unsharded gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "comm/mesh.h"
#include "model/parameter.h"
#include "parallel/sharded_parameter.h"

namespace argosy::parallel {

/// The layout of parameters of a set in one buffer. Each parameter has a slice, in the unit's order, padded
/// so that all shards have equally many rows. The slices of a join are adjacent, and one view covers them,
/// unless padding is between them. The first slice of a join and every other slice begin at an aligned
/// element, because matrix products are faster on aligned memory.
class UnitLayout {
  public:
    /// A parameter as a layer computes with it, without padding.
    struct Parameter {
        model::Place place;
        std::vector<int64_t> shape;
    };
    UnitLayout(const std::vector<Parameter>& parameters, int num_shards);

    int64_t num_elements() const { return num_elements_; }

    /// The view of entry i in `buffer`, with its padding.
    at::Tensor padded(const at::Tensor& buffer, size_t i) const;
    /// The views of every join in `buffer` but for those with padding between their parameters.
    model::Joined joined(const at::Tensor& buffer) const;

  private:
    struct Slice {
        int64_t begin, num_elements;
        std::vector<int64_t> shape;
    };
    std::map<int, Slice> joined_;
    std::vector<Slice> slices_;
    int64_t num_elements_ = 0;
};

/// Joined tensors of parameters that are not sharded; missing where the parameters of a join are not
/// adjacent in memory.
struct JoinedMemory {
    model::Joined weights, gradients;
};

/// Memory for the shards of a unit's parameters.
class UnitMemory {
  public:
    /// Allocates the memory of the joins. REQUIRES: unit and mesh outlive the object.
    /// The parameters `in_float8` compute in e4m3.
    UnitMemory(const std::vector<model::Parameter>& unit, comm::Mesh& mesh, const Precision& precision,
               ModelUse use = ModelUse::Training, std::set<int> in_float8 = {});

    /// COLLECTIVE over the ranks of its shards: returns the memory of a parameter of the unit. REQUIRES:
    /// called once for each parameter, except for a tied one that another unit already has.
    ParameterMemory of(int number);

    /// The joined tensors; none of sharded parameters.
    JoinedMemory joined() const;

  private:
    std::vector<int64_t> shape_of(int number) const;
    ParameterMemory allocate(int number, const std::vector<int64_t>& shape);

    const std::vector<model::Parameter>& unit_;
    comm::Mesh& mesh_;
    Precision precision_;
    ModelUse use_;
    std::set<int> in_float8_;
    std::map<int, ParameterMemory> joins_;  // by the number of their first parameter
    std::map<int, at::Tensor> scales_;      // of what is in float8 and not in joins_
};

}  // namespace argosy::parallel
