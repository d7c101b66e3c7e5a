// Tensor parallelism with sequence parallelism over the ranks of one group: the TensorAxis that communicates
// (model/tensor_axis.h). TensorParallelAxis submits one collective and then waits for it.
// OverlappedTensorAxis cuts a product and its collective into one part for each rank. The parts travel around
// the ring of ranks while the product of another part is computed. The weights' gradients need no such cut:
// the rows that they need travel while a unit's other weights' gradients are computed (model::WeightWork).
// The head's ranks compute the same tokens at the same time, because the loss combines their logits;
// therefore its pieces have rows of all ranks.
//
// All ranks have equally many rows. If the tokens of a microbatch do not divide, rows without a token follow
// the last token. Their gradients are zero, and no token sees them.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "layout/param_spec.h"
#include "model/tensor_axis.h"
#include "parallel/product_casts.h"

namespace argosy::parallel {

struct TensorOptions {
    bool overlap_products = false;  // see OverlappedTensorAxis
    bool gather_logits = false;     // see model::Head
    bool operator==(const TensorOptions&) const = default;
};

/// The model::TensorAxis of a mesh, for microbatches of num_tokens tokens. COLLECTIVE over the tensor and the
/// context axis. REQUIRES: mesh outlives the object; each rank has a token.
std::unique_ptr<model::TensorAxis> make_tensor_axis(const TensorOptions& options, comm::Mesh& mesh,
                                                    int64_t num_tokens, const ProductCasts& casts = {});

class TensorParallelAxis : public model::TensorAxis {
  public:
    /// `parts` has the ranks of max_of_parts(). REQUIRES: the groups outlive the object.
    TensorParallelAxis(comm::Communicator& group, comm::Communicator& parts, int64_t num_tokens)
        : group_(group), parts_(parts), num_tokens_(num_tokens) {}

    layout::Range share(int64_t n) const override { return layout::chunk(n, group_.size(), group_.rank()); }
    int64_t largest_share(int64_t n) const override { return layout::chunk(n, group_.size(), 0).size; }
    int degree() const override { return group_.size(); }
    bool sums() const override { return true; }
    ops::Operand gather(const ops::Operand& x, const char* work) const override;
    std::unique_ptr<model::ComingRows> start_gather(const ops::Operand& x, const char* work) const override;
    at::Tensor reduce_rows(const at::Tensor& partial, const char* work) const override;
    std::unique_ptr<model::ComingRows> start_reduce(const at::Tensor& partial, int64_t num_rows,
                                                    const char* work) const override;
    at::Tensor targets_of(const layout::Range& piece, const at::Tensor& targets) const override;
    void sum(at::Tensor& values, const char* work) const override;
    void max(at::Tensor& values) const override;
    void max_of_parts(at::Tensor& values) const override;
    at::Tensor gather_columns(const at::Tensor& x, int64_t num_columns) const override;

  protected:
    comm::Communicator &group_, &parts_;
    int64_t num_tokens_;
};

class OverlappedTensorAxis : public TensorParallelAxis {
  public:
    /// COLLECTIVE over the group. Each rank's rows in pieces() are whole blocks of `block_tokens`, so that a
    /// block has adjacent tokens. REQUIRES: the groups outlive the object.
    OverlappedTensorAxis(comm::Communicator& group, comm::Communicator& parts, int64_t num_tokens,
                         int64_t block_tokens = 1);

    at::Tensor column(const ops::Operand& x, const ops::Stack& weight, const ops::Stack& bias) const override;
    ColumnGradient column_backward(const at::Tensor& dy, const at::Tensor& largest,
                                   const ops::Stack& weight) const override;
    RowGradient row_backward(const at::Tensor& dy, const ops::Stack& weight) const override;
    std::vector<layout::Range> pieces(int64_t num_rows) const override;

  protected:
    at::Tensor row_sum(const ops::Operand& x, const ops::Stack& weight, const char* work) const override;

  private:
    /// gather(x). Calls use() for the tokens of one rank after the other, from its own on, as soon as they
    /// are in `all`; the next rank's rows travel meanwhile.
    using Use = c10::function_ref<void(const ops::Operand& all, layout::Range tokens)>;
    ops::Operand gather_and(Use use, const ops::Operand& x, const char* work) const;
    /// reduce_rows() of a matrix that make() computes for the tokens of one rank after the other, this rank
    /// last; the sums of the rank before travel meanwhile. They are rounded after each addition.
    using Make = c10::function_ref<at::Tensor(layout::Range tokens)>;
    at::Tensor reduce_rows_of(Make make, const char* work) const;

    /// The rank that is `distance` ranks before this one on the ring.
    int rank_before(int distance) const;
    layout::Range tokens_of(int rank) const { return layout::chunk(num_tokens_, group_.size(), rank); }
    /// Starts to send `out` to the next rank of the ring, and to receive `in` from the rank before, where
    /// this rank has `there`. `in` is a part of a tensor of comm::Communicator::make_ring_tensor().
    comm::Pending exchange(const at::Tensor& out, const at::Tensor& there, const at::Tensor& in,
                           const comm::Purpose& purpose) const;

    int64_t block_tokens_;
};

}  // namespace argosy::parallel
