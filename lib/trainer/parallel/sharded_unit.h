// A unit is the parameters of one layer, or of the head: the weights and gradients with which the layer
// computes. The unit's sets (sharded_set.h) gather and reduce them. The executor calls the sets.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameter.h"
#include "parallel/sharded_set.h"
#include "parallel/unit_memory.h"

namespace argosy::parallel {

class ShardedUnit {
  public:
    struct Parameter {
        model::Place place;
        ShardedParameter* parameter;
        comm::Communicator* summed_over = nullptr;  // as in ShardedSet::Parameter
        int set = 0;
    };
    /// `parameters` in the order of the unit; `groups` has for each set the ranks over which its parameters
    /// are sharded. `joined` (unit_memory.h) has the joins of the sets whose group has one rank.
    /// `reduce_after` says which gradients are summed before ShardedSet::reduce(). `recipes` goes into
    /// weights(). REQUIRES: parameters and groups outlive the unit.
    ShardedUnit(const std::vector<Parameter>& parameters, const std::vector<comm::Communicator*>& groups,
                const JoinedMemory& joined = {}, ReduceAfter reduce_after = ReduceAfter::Microbatch,
                std::vector<const ops::Recipe*> recipes = {});
    ShardedUnit(const ShardedUnit&) = delete;  // the sets refer to the unit

    /// Part of weights() from now on.
    void set_router_bias(const at::Tensor& bias) { weights_.router_bias = bias; }

    std::vector<ShardedSet>& sets() { return sets_; }
    bool sharded() const;  // whether one of the sets is

    /// Waits for the gathers that are under way, then returns the weights.
    const model::Weights& weights();
    /// The sums to which a layer adds its weights' gradients of a microbatch. Microbatches are counted from
    /// the last ParallelModel::start_roundings().
    const model::Gradients& gradients(int64_t microbatch = 0);

    /// COLLECTIVE: gathers the weights of all sets, or frees them, as a program does set by set.
    void gather();
    void release();

  private:
    model::Weights weights_;
    model::Gradients gradients_;
    std::vector<ShardedSet> sets_;
};

}  // namespace argosy::parallel
