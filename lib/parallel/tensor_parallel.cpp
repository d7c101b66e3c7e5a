#include "parallel/tensor_parallel.h"

#include <ATen/ops/empty.h>

#include "base/error.h"

namespace argosy::parallel {

using comm::OpKind;

at::Tensor TensorParallelAxis::gather_rows(const at::Tensor& x) const {
    at::Tensor all = at::empty({x.size(0) * group_.size(), x.size(1)}, x.options());
    group_.run({.kind = OpKind::AllGather, .out = all, .in = x.contiguous()});
    return all;
}

at::Tensor TensorParallelAxis::reduce_rows(const at::Tensor& partial) const {
    ARGOSY_CHECK(partial.size(0) % group_.size() == 0, "{} rows on {} ranks", partial.size(0), group_.size());
    at::Tensor own = at::empty({partial.size(0) / group_.size(), partial.size(1)}, partial.options());
    group_.run({.kind = OpKind::ReduceScatter, .out = own, .in = partial.contiguous()});
    return own;
}

void TensorParallelAxis::sum(at::Tensor& values) const {
    group_.run({.kind = OpKind::AllReduce, .out = values, .in = values});
}

void TensorParallelAxis::max(at::Tensor& values) const {
    group_.run({.kind = OpKind::AllReduce, .out = values, .in = values, .reduction = comm::Reduction::Max});
}

}  // namespace argosy::parallel
