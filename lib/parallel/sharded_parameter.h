// A rank's piece of one parameter: the weights that the optimizer updates, the copy that computation uses,
// and the gradient. All three are [chunk rows, ...]; rows past the piece's own are zero, so that every rank's
// are equally long.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layout/param_spec.h"
#include "mesh/mesh.h"
#include "model/parameter.h"

namespace argosy::parallel {

/// Element types: of the weights that the optimizer owns, of computation, and of gradient sums.
struct Precision {
    at::ScalarType master = at::kFloat;
    at::ScalarType compute = at::kBFloat16;
    at::ScalarType reduce = at::kFloat;
};

/// What three tensors of a parameter lie in. The copy is the weights themselves where the types agree.
struct ParameterMemory {
    at::Tensor master, compute, gradient;

    /// Filled with zeros.
    static ParameterMemory allocate(const std::vector<int64_t>& shape, const Precision& precision,
                                    c10::Device device);
    /// Of one of several parameters that lie in it one behind the other.
    ParameterMemory rows(int64_t begin, int64_t count) const;
};

/// Of the piece of `coordinates` between tensor parallelism and sharding: what a layer computes with.
std::vector<int64_t> unsharded_shape(const layout::ParamSpec& spec, const mesh::MeshShape& mesh,
                                     const mesh::Coordinates& coordinates);

/// Likewise sharded: what a rank holds, [chunk rows, ...].
std::vector<int64_t> shard_shape(const layout::ParamSpec& spec, const mesh::MeshShape& mesh,
                                 const mesh::Coordinates& coordinates);

class ShardedParameter {
  public:
    /// Fills the weights with the initial values of `seed`. REQUIRES: memory of the shard's shape, zeros.
    ShardedParameter(const layout::ParamSpec& spec, const mesh::Mesh& mesh, const ParameterMemory& memory,
                     uint64_t seed);

    const layout::ParamSpec& spec() const { return spec_; }
    const layout::Slab& slab() const { return slab_; }  // this rank's box of the global tensor
    bool owned() const { return owned_; }  // counts for norms: one rank among those that hold the same

    /// See unsharded_shape.
    const std::vector<int64_t>& local_shape() const { return local_shape_; }

    at::Tensor& master() { return master_; }
    const at::Tensor& compute() const { return compute_; }
    model::GradientSum& gradient() { return gradient_; }

    /// The rows of `whole`, one of the three, that are this rank's own.
    at::Tensor own_rows(const at::Tensor& whole) const { return whole.narrow(0, 0, slab_.size[0]); }

    /// After master() was written by others than the optimizer, which writes both.
    void refresh_compute();

  private:
    layout::ParamSpec spec_;
    layout::Slab slab_;
    bool owned_;
    std::vector<int64_t> local_shape_;
    at::Tensor master_;
    at::Tensor compute_;  // the same tensor as master_ where the types agree
    model::GradientSum gradient_;
};

}  // namespace argosy::parallel
