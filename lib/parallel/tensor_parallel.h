// Tensor parallelism with sequence parallelism over the ranks of one group: the TensorAxis that communicates
// (model/tensor_axis.h). TensorParallelAxis submits one collective and then waits for it.
// OverlappedTensorAxis cuts a product and its collective into one part for each rank. The parts travel around
// the ring of ranks while the product of another part is computed.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "layout/param_spec.h"
#include "model/tensor_axis.h"

namespace argosy::parallel {

struct TensorOptions {
    bool overlap_products = false;  // see OverlappedTensorAxis
    bool operator==(const TensorOptions&) const = default;
};

/// The model::TensorAxis of a mesh. COLLECTIVE over the tensor axis. REQUIRES: mesh outlives the object.
std::unique_ptr<model::TensorAxis> make_tensor_axis(const TensorOptions& options, comm::Mesh& mesh);

class TensorParallelAxis : public model::TensorAxis {
  public:
    /// REQUIRES: group outlives the object.
    explicit TensorParallelAxis(comm::Communicator& group) : group_(group) {}

    layout::Range share(int64_t n) const override { return layout::chunk(n, group_.size(), group_.rank()); }
    int64_t largest_share(int64_t n) const override { return layout::chunk(n, group_.size(), 0).size; }
    bool sums() const override { return true; }
    at::Tensor gather_rows(const at::Tensor& x) const override;
    std::unique_ptr<model::ComingRows> start_gather(const at::Tensor& x) const override;
    at::Tensor reduce_rows(const at::Tensor& partial) const override;
    void sum(at::Tensor& values) const override;
    void max(at::Tensor& values) const override;

  protected:
    comm::Communicator& group_;
};

class OverlappedTensorAxis : public TensorParallelAxis {
  public:
    /// COLLECTIVE over the group. REQUIRES: group outlives the object.
    explicit OverlappedTensorAxis(comm::Communicator& group);

    at::Tensor column(const at::Tensor& x, const ops::Stack& weight, const ops::Stack& bias) const override;
    at::Tensor column_backward(const at::Tensor& dy, const ops::Stack& weight) const override;
    at::Tensor row(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& residual) const override;
    RowGradient row_backward(const at::Tensor& dy, const at::Tensor& weight) const override;

  private:
    /// gather_rows(x). Calls use(rows) for the rows of one rank after the other, from its own on, as soon as
    /// they are in `all`; the next rank's rows travel meanwhile.
    using Use = c10::function_ref<void(const at::Tensor& all, layout::Range rows)>;
    at::Tensor gather_rows_and(Use use, const at::Tensor& x) const;
    /// reduce_rows() of a matrix of num_rows rows that make(rows) computes for one rank after the other, the
    /// own ones last; the sums of the rank before travel meanwhile. They are rounded after each addition.
    using Make = c10::function_ref<at::Tensor(layout::Range rows)>;
    at::Tensor reduce_rows_of(Make make, int64_t num_rows) const;

    /// The rows of the rank that is `distance` ranks before this one on the ring.
    layout::Range rows_of_rank_before(int distance, int64_t rows_per_rank) const;
    /// Starts to send `out` to the next rank of the ring, and to receive `in` from the rank before.
    comm::Pending exchange(const at::Tensor& out, const at::Tensor& in) const;
};

}  // namespace argosy::parallel
