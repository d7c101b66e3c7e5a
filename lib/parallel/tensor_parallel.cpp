#include "parallel/tensor_parallel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "base/error.h"
#include "ops/matmul.h"

namespace argosy::parallel {

using comm::Op;
using comm::OpKind;
using layout::Range;

namespace {

class GatheredRows : public model::ComingRows {
  public:
    GatheredRows(comm::Communicator& group, const at::Tensor& x)
        : all_(at::empty({x.size(0) * group.size(), x.size(1)}, x.options())),
          pending_(group.submit({.kind = OpKind::AllGather, .out = all_, .in = x.contiguous()})) {}
    at::Tensor take() override {
        pending_.wait();
        return std::move(all_);
    }

  private:
    at::Tensor all_;
    comm::Pending pending_;
};

at::Tensor rows_in(const at::Tensor& all, Range rows) { return all.narrow(0, rows.begin, rows.size); }

}  // namespace

std::unique_ptr<model::TensorAxis> make_tensor_axis(const TensorOptions& options, comm::Mesh& mesh) {
    if (mesh.degree(layout::Axis::Tensor) == 1) return std::make_unique<model::TensorAxis>();
    comm::Communicator& group = mesh.group(layout::Axis::Tensor);
    if (options.overlap_products) return std::make_unique<OverlappedTensorAxis>(group);
    return std::make_unique<TensorParallelAxis>(group);
}

at::Tensor TensorParallelAxis::gather_rows(const at::Tensor& x) const {
    return GatheredRows(group_, x).take();
}

std::unique_ptr<model::ComingRows> TensorParallelAxis::start_gather(const at::Tensor& x) const {
    return std::make_unique<GatheredRows>(group_, x);
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

OverlappedTensorAxis::OverlappedTensorAxis(comm::Communicator& group) : TensorParallelAxis(group) {
    group_.open_channels();
}

at::Tensor OverlappedTensorAxis::column(const at::Tensor& x, const ops::Stack& weight,
                                        const ops::Stack& bias) const {
    const at::Tensor y = at::empty({x.size(0) * group_.size(), weight.num_rows()}, x.options());
    gather_rows_and(
        [&](const at::Tensor& all, Range rows) {
            ops::write_linear(rows_in(y, rows), rows_in(all, rows), weight, bias);
        },
        x);
    return y;
}

at::Tensor OverlappedTensorAxis::column_backward(const at::Tensor& dy, const ops::Stack& weight) const {
    return reduce_rows_of([&](Range rows) { return ops::linear_input_gradient(rows_in(dy, rows), weight); },
                          dy.size(0));
}

at::Tensor OverlappedTensorAxis::row(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                     const at::Tensor& residual) const {
    const int64_t own_begin = group_.rank() * residual.size(0);
    return reduce_rows_of(
        [&](Range rows) {
            const at::Tensor part = rows_in(x, rows);
            return rows.begin == own_begin ? ops::add_linear(residual, part, weight, bias)
                                           : ops::linear(part, weight);
        },
        x.size(0));
}

model::TensorAxis::RowGradient OverlappedTensorAxis::row_backward(const at::Tensor& dy,
                                                                  const at::Tensor& weight) const {
    const at::Tensor dx = at::empty({dy.size(0) * group_.size(), weight.size(1)}, dy.options());
    const at::Tensor dy_all = gather_rows_and(
        [&](const at::Tensor& all, Range rows) {
            ops::write_linear_input_gradient(rows_in(dx, rows), rows_in(all, rows), weight);
        },
        dy);
    return {dx, dy_all};
}

at::Tensor OverlappedTensorAxis::gather_rows_and(Use use, const at::Tensor& x) const {
    at::Tensor all = at::empty({x.size(0) * group_.size(), x.size(1)}, x.options());
    rows_in(all, rows_of_rank_before(0, x.size(0))).copy_(x);
    for (int turn = 0; turn < group_.size(); ++turn) {
        const Range rows = rows_of_rank_before(turn, x.size(0));
        comm::Pending next;
        if (turn + 1 < group_.size()) {
            next = exchange(rows_in(all, rows), rows_in(all, rows_of_rank_before(turn + 1, x.size(0))));
        }
        use(all, rows);
        next.wait();
    }
    return all;
}

at::Tensor OverlappedTensorAxis::reduce_rows_of(Make make, int64_t num_rows) const {
    ARGOSY_CHECK(num_rows % group_.size() == 0, "{} rows on {} ranks", num_rows, group_.size());
    at::Tensor sum;  // of the ranks so far, for the rows of the turn before
    for (int turn = 0; turn < group_.size(); ++turn) {
        at::Tensor received;
        comm::Pending exchanged;
        if (turn > 0) {
            received = at::empty_like(sum);
            exchanged = exchange(sum, received);
        }
        at::Tensor product = make(rows_of_rank_before(turn + 1, num_rows / group_.size()));
        exchanged.wait();
        sum = received.defined() ? product.add_(received) : std::move(product);
    }
    return sum;
}

Range OverlappedTensorAxis::rows_of_rank_before(int distance, int64_t rows_per_rank) const {
    const int rank = (group_.rank() + 2 * group_.size() - distance) % group_.size();
    return {rank * rows_per_rank, rows_per_rank};
}

comm::Pending OverlappedTensorAxis::exchange(const at::Tensor& out, const at::Tensor& in) const {
    const int size = group_.size(), rank = group_.rank();
    const Op ops[] = {{.kind = OpKind::Send, .in = out, .peer = (rank + 1) % size},
                      {.kind = OpKind::Receive, .out = in, .peer = (rank + size - 1) % size}};
    return group_.submit(ops);
}

}  // namespace argosy::parallel
