// Context parallelism: each rank of a group holds a part of every sequence, of one or two chunks
// (layout::context_parts). Attention gets the keys and values of the other ranks in one of two ways.
// AllGather: all keys at once; their gradients are summed by one reduce-scatter. Ring: the keys of one rank
// at a time, which travel around the ring of ranks; memory does not grow with the number of ranks, and the
// next keys, and the sums of their gradients, travel while a rank computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "layout/slab.h"
#include "model/tensor_axis.h"

namespace argosy::parallel {

struct ContextOptions {
    enum class Rotation { AllGather, Ring };
    Rotation rotation = Rotation::AllGather;
    layout::ContextBalance balance = layout::ContextBalance::HeadTail;
    bool operator==(const ContextOptions&) const = default;
};

/// The model::ContextAxis of a mesh, for sequences of seq_len tokens. COLLECTIVE over the context axis.
/// REQUIRES: mesh outlives the object.
std::unique_ptr<model::ContextAxis> make_context_axis(const ContextOptions& options, comm::Mesh& mesh,
                                                      int64_t seq_len);

class ContextParallelAxis : public model::ContextAxis {
  public:
    /// REQUIRES: group outlives the object.
    ContextParallelAxis(const ContextOptions& options, comm::Communicator& group, int64_t seq_len);

    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape,
                                   const at::Tensor& positions) const override;
    ops::AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const ops::AttentionOutput& output,
                                              const ops::AttentionShape& shape,
                                              const at::Tensor& positions) const override;

  private:
    class Ring;
    class Backward;
    using Parts = std::vector<layout::Range>;

    /// The keys and values of all ranks, [num_sequences, seq_len, k and v columns], in the sequence's order.
    at::Tensor gathered(const at::Tensor& kv, int64_t num_sequences) const;
    /// The sum over ranks of gradients of all keys and values, for this rank's tokens.
    at::Tensor scattered(const at::Tensor& dkv) const;
    /// COLLECTIVE: the gradient of this rank's kv, by the queries of all ranks.
    at::Tensor gathered_gradient(const at::Tensor& kv, Backward& backward) const;
    at::Tensor ring_gradient(const at::Tensor& kv, Backward& backward) const;
    comm::Pending exchange(const at::Tensor& out, const at::Tensor& in) const;

    comm::Communicator& group_;
    ContextOptions::Rotation rotation_;
    int64_t seq_len_;
    std::vector<Parts> parts_;  // by rank
};

}  // namespace argosy::parallel
