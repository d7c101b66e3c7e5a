// The parameters that are gathered and reduced together: one layer's, or the head's. Over a shard group of
// one rank there is nothing to gather or reduce, and weights and gradients are the parameters' own tensors,
// uncopied.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.h"
#include "model/parameter.h"
#include "parallel/sharded_parameter.h"
#include "parallel/unit_layout.h"

namespace argosy::parallel {

/// Joins of what the parameters of an unsharded unit hold, where they lie so in memory.
struct JoinedMemory {
    model::Joined weights, gradients;
};

class ShardedUnit {
  public:
    struct Binding {
        model::Role role;
        ShardedParameter* parameter;
        bool summed = false;  // over replicas, with this unit's
    };
    /// REQUIRES: parameters and groups outlive it. `group` is the ranks over which the parameters are
    /// sharded, `replicas` those that have the same pieces. `joined` counts over a group of one rank alone.
    ShardedUnit(std::vector<Binding> bindings, comm::Communicator& group, comm::Communicator& replicas,
                const JoinedMemory& joined = {});

    bool sharded() const { return group_.size() > 1; }

    /// COLLECTIVE, asynchronous: starts to collect the weights into one buffer (UnitLayout); `weights` waits
    /// for it. The parameters' compute tensors must stay unchanged until then.
    void gather();
    /// Gives the buffer back. REQUIRES: nothing computes with the weights any more.
    void release();
    const model::Weights& weights();

    /// Where a layer adds its weights' gradients: unsharded sums, allocated at first use after a reduction.
    const model::Gradients& gradients();
    /// COLLECTIVE, asynchronous: starts to sum the gradients over the group, each rank its own rows.
    void reduce();
    /// Waits and adds the sums to the parameters' gradients. Does nothing when no reduction is under way.
    void finish_reduce();

    /// COLLECTIVE over the replicas, asynchronous: starts to sum the parameters' gradients over them, in
    /// place. REQUIRES: no gradient is added until the end.
    void sum_replicas();
    /// Waits. Does nothing when no sum is under way.
    void finish_sum();

    /// Of weights that are gathered now; of gradients that are not yet the parameters' own.
    int64_t gathered_bytes() const;
    int64_t gradient_bytes() const;

  private:
    void allocate_gradients();

    std::vector<Binding> bindings_;
    comm::Communicator &group_, &replicas_;
    UnitLayout layout_;  // of a unit that is sharded

    model::Weights weights_;
    comm::Pending gathering_;

    at::Tensor gradient_buffer_;
    std::vector<model::GradientSum> sums_;  // views of the buffer, one for each binding
    model::Gradients gradients_;
    std::vector<at::Tensor> reduced_;
    comm::Pending reducing_;
    comm::Pending summing_;
};

}  // namespace argosy::parallel
