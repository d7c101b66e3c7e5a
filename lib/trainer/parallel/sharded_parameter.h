// A rank's shard of one parameter: the master weights that the optimizer updates, their copy in the compute
// type, and the gradient. All three have the shape [chunk rows, ...], which is the same on every rank of the
// shard group. A rank whose shard is shorter has rows of zeros at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/mesh.h"
#include "layout/param_spec.h"
#include "model/parameter.h"
#include "ops/float8.h"
#include "ops/stochastic_rounding.h"

namespace argosy::parallel {

/// The element types of weights, activations and gradients.
struct Precision {
    at::ScalarType master = at::kFloat;      // weights that the optimizer updates
    at::ScalarType compute = at::kBFloat16;  // weights and activations in forward and backward
    at::ScalarType reduce = at::kFloat;      // sums of gradients over ranks
    /// Sums of gradients over microbatches, which last until the update: in bf16, rounded stochastically, or
    /// in the type `reduce`. REQUIRES: `reduce` is fp32 if true.
    bool bf16_gradients = false;

    at::ScalarType gradient() const { return bf16_gradients ? at::kBFloat16 : reduce; }
};

/// The use of a model. A model for inference has no gradients, and its weights are zero until they are
/// loaded.
enum class ModelUse { Training, Inference };

/// The memory of a parameter's tensors. `compute` and `master` are the same tensor if their types agree.
struct ParameterMemory {
    at::Tensor master, compute;
    /// fp32 [1, 1], shared by the parameters of a join. Undefined unless `compute` is in float8.
    at::Tensor scale;
    at::Tensor gradient;  // undefined in a model for inference

    /// COLLECTIVE over `shards`, the ranks that gather the weights and reduce the gradients: returns tensors
    /// filled with zeros.
    static ParameterMemory allocate(const std::vector<int64_t>& shape, const Precision& precision,
                                    comm::Communicator& shards, ModelUse use = ModelUse::Training);
    /// Returns views of `count` rows from `begin`: one parameter's part of a memory that holds several
    /// adjacent parameters.
    ParameterMemory rows(int64_t begin, int64_t count) const;
};

/// The shape with which a layer computes on the rank at `coordinates`: after the tensor parallel cut,
/// before the cut over the shard axes.
std::vector<int64_t> unsharded_shape(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                                     const layout::Coordinates& coordinates);

/// The shape of the shard of the rank at `coordinates`: [chunk rows, ...], after the tensor parallel cut and
/// the cut over the shard axes, with padding.
std::vector<int64_t> shard_shape(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                                 const layout::Coordinates& coordinates);

class ShardedParameter {
  public:
    /// Fills the weights with the initial values of `seed`, unless they have no data (meta) or `memory` has
    /// no gradient. `first_rounding` is for gradients in bf16, else null. REQUIRES: `memory` has the shape
    /// shard_shape() and is filled with zeros; first_rounding outlives the parameter.
    ShardedParameter(const layout::ParamSpec& spec, const comm::Mesh& mesh, const ParameterMemory& memory,
                     uint64_t seed, const ops::FirstRounding* first_rounding = nullptr);

    const layout::ParamSpec& spec() const { return spec_; }
    /// The slab of the whole parameter that this rank holds.
    const layout::Slab& slab() const { return slab_; }
    /// Whether this rank counts the shard in norms: true on exactly one of the ranks with the same elements.
    bool owned() const { return owned_; }

    /// The value of unsharded_shape().
    const std::vector<int64_t>& local_shape() const { return local_shape_; }

    at::Tensor& master() { return master_; }
    const at::Tensor& compute() const { return compute_; }
    /// The scale of compute() if that is in float8; else undefined.
    const at::Tensor& scale() const { return scale_; }
    model::GradientSum& gradient() { return gradient_; }
    /// The random bits of a sum of whole gradients in bf16, before the reduce-scatter; none if gradients are
    /// not in bf16.
    const std::optional<ops::SumRounding>& unreduced_rounding() const { return unreduced_rounding_; }

    // A sum over ranks is in fp32 (fp64 in fp64), also of gradients in bf16:
    // wide_gradient() gives each rank's tensor to sum, and set_gradient() takes the sum.

    /// The gradient for a sum over ranks: the tensor gradient().sum itself, or a copy in fp32.
    at::Tensor wide_gradient() const;
    /// Makes `sum` the gradient. Each rank rounds the same sum to the same bits. Does nothing if `sum` is the
    /// tensor gradient().sum itself.
    void set_gradient(const at::Tensor& sum, ops::Rounded what);

    /// The rows of `whole` (one of the three tensors) without the padding.
    at::Tensor own_rows(const at::Tensor& whole) const { return whole.narrow(0, 0, slab_.size[0]); }

    /// Copies master() to compute(). Every writer of master() must call this, except the optimizer, which
    /// writes both. Does nothing for a compute() in float8: ParallelModel::refresh_float8() casts all of
    /// them.
    void refresh_compute();
    /// Casts master() to a compute() in float8. `largest` is at least the largest magnitude of the whole
    /// parameter.
    void cast_to_float8(const ops::Cast& cast, const at::Tensor& largest);

  private:
    layout::ParamSpec spec_;
    uint64_t seed_;
    layout::Slab slab_;
    bool owned_;
    std::vector<int64_t> local_shape_;
    at::Tensor master_;
    at::Tensor compute_;  // the same tensor as master_ if the types agree
    at::Tensor scale_;
    model::GradientSum gradient_;
    std::optional<ops::SumRounding> unreduced_rounding_;
};

}  // namespace argosy::parallel
