// A set is those parameters of a unit that are gathered and reduced together, over ranks of their own. The
// set owns the buffers of gathered weights and of unsharded gradients; ParallelModel owns the parameters. If
// the shard group has one rank, there is nothing to gather or reduce: weights and gradients are the
// parameters' own tensors, without a copy. The executor calls the set.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.h"
#include "model/parameter.h"
#include "parallel/lowering.h"
#include "parallel/sharded_parameter.h"
#include "parallel/unit_memory.h"

namespace argosy::parallel {

class ShardedSet {
  public:
    struct Parameter {
        model::Place place;
        ShardedParameter* parameter;
        comm::Communicator* summed_over = nullptr;  // the ranks over which sum() sums its gradient
        int number = 0;                             // in the unit
    };
    /// `group` has the ranks over which the parameters are sharded. `weights` and `gradients` are of the
    /// unit: the set fills its parameters' entries. REQUIRES: all of these outlive the set.
    ShardedSet(std::vector<Parameter> parameters, comm::Communicator& group, model::Weights& weights,
               model::Gradients& gradients, ReduceAfter reduce_after);

    bool sharded() const { return group_.size() > 1; }

    /// COLLECTIVE: starts to all-gather the weights into one buffer (UnitLayout) and returns at once. The
    /// parameters' compute tensors must stay unchanged until wait_for_weights() has returned.
    void gather();
    /// Frees the buffer of gathered weights. REQUIRES: no computation uses the weights any more.
    void release();
    /// Waits for gather() if it is under way.
    void wait_for_weights() { gathering_.wait(); }

    /// Makes the sums to which a layer adds its weights' gradients of a microbatch. If the set is sharded,
    /// these are sums of whole gradients, in a buffer that the first call after a reduction allocates. The
    /// buffer has the type of the parameters' gradients, but it is in fp32 if those are in bf16 and the
    /// buffer holds a single microbatch.
    void start_gradients(int64_t microbatch);
    /// COLLECTIVE: starts to reduce-scatter the gradients over the group, in fp32 if they are in bf16, and
    /// returns at once. start_gradients() may be called again at once: it allocates a new buffer.
    void reduce();
    /// Waits for reduce() and adds its results to the parameters' gradients. Does nothing if no reduction is
    /// under way.
    void finish_reduce();

    /// COLLECTIVE over Parameter::summed_over: starts to all-reduce the parameters' gradients and returns at
    /// once. The sum is in place, or of fp32 copies if the gradients are in bf16. REQUIRES: no gradient is
    /// added until finish_sum() has returned.
    void sum();
    /// Waits for sum() and rounds gradients in bf16. Does nothing if no sum is under way.
    void finish_sum();

    /// Starts to send the gradient of the set's tied table to the rank of `pipeline` that holds the table
    /// too, or to receive that rank's gradient, and returns at once. REQUIRES: the gradient to send is
    /// complete and summed, and does not change until add_table() has returned.
    void send_table(comm::Communicator& pipeline);
    void receive_table(comm::Communicator& pipeline);
    /// Waits for both messages and adds what was received. Two numbers have the same sum in either order, so
    /// both ranks get the same bits.
    void add_table();

    /// Bytes of the buffer of gathered weights, and of the buffer of gradients that are not reduced yet; 0 if
    /// there is none.
    int64_t gathered_bytes() const;
    int64_t gradient_bytes() const;

  private:
    /// The weights of one type, which are gathered into one buffer.
    struct WeightBuffer {
        at::ScalarType type;
        std::vector<size_t> parameters;
        UnitLayout layout;
    };
    std::vector<WeightBuffer> weight_buffers() const;
    void allocate_gradients();
    ShardedParameter& tied_table();
    bool rounds_unreduced() const;
    at::Tensor reduced_tensor(at::IntArrayRef shape, const at::TensorOptions& options);

    std::vector<Parameter> parameters_;
    comm::Communicator& group_;
    std::vector<WeightBuffer> weight_buffers_;
    UnitLayout layout_;  // of the buffer of gradients; unused if the set is not sharded
    ReduceAfter reduce_after_;

    model::Weights& weights_;
    model::Gradients& gradients_;
    comm::Pending gathering_;

    at::Tensor gradient_buffer_;
    std::vector<model::GradientSum> sums_;  // views of gradient_buffer_, one for each parameter
    int64_t microbatch_ = 0;                // of the last start_gradients()
    int64_t reduced_microbatch_ = 0;        // the last one whose gradients are in the reduction under way
    std::vector<at::Tensor> reduced_;       // outputs of the reduction under way, one for each parameter
    comm::Pending reducing_;
    std::vector<at::Tensor> summed_;      // results of the sum under way, one for each parameter or undefined
    std::vector<comm::Pending> summing_;  // one for each group of ranks
    at::Tensor table_gradient_;           // of the other rank that holds the tied table
    comm::Pending sending_table_, receiving_table_;
};

}  // namespace argosy::parallel
