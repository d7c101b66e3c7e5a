// Tensor parallelism with sequence parallelism over the ranks of one group: the model::TensorAxis that
// communicates. Each call submits one collective and waits for it.
#pragma once

#include "comm/communicator.h"
#include "model/tensor_axis.h"

namespace argosy::parallel {

class TensorParallelAxis : public model::TensorAxis {
  public:
    /// REQUIRES: group outlives the object.
    explicit TensorParallelAxis(comm::Communicator& group) : group_(group) {}

    layout::Range share(int64_t n) const override { return layout::chunk(n, group_.size(), group_.rank()); }
    int64_t largest_share(int64_t n) const override { return layout::chunk(n, group_.size(), 0).size; }
    at::Tensor gather_rows(const at::Tensor& x) const override;
    at::Tensor reduce_rows(const at::Tensor& partial) const override;
    void sum(at::Tensor& values) const override;
    void max(at::Tensor& values) const override;

  private:
    comm::Communicator& group_;
};

}  // namespace argosy::parallel
