#include "parallel/tensor_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "ops/matmul.h"

namespace argosy::parallel {

using comm::Op;
using comm::OpKind;
using layout::Range;

namespace {

class GatheredRows : public model::ComingRows {
  public:
    GatheredRows(comm::Communicator& group, const at::Tensor& x, int64_t num_tokens)
        : num_tokens_(num_tokens),
          all_(at::empty({x.size(0) * group.size(), x.size(1)}, x.options())),
          pending_(group.submit({.kind = OpKind::AllGather, .out = all_, .in = x.contiguous()})) {}
    at::Tensor take() override {
        pending_.wait();
        return std::exchange(all_, {}).narrow(0, 0, num_tokens_);
    }

  private:
    int64_t num_tokens_;
    at::Tensor all_;
    comm::Pending pending_;
};

at::Tensor rows_in(const at::Tensor& all, Range rows) { return all.narrow(0, rows.begin, rows.size); }

/// Returns x with zeros after it, or x itself if it has that size.
at::Tensor padded(const at::Tensor& x, int dim, int64_t size) {
    if (x.size(dim) == size) return x.contiguous();
    std::vector<int64_t> padding = {x.size(0), x.size(1)};
    padding[dim] = size - x.size(dim);
    return at::cat({x, at::zeros(padding, x.options())}, dim);
}

}  // namespace

std::unique_ptr<model::TensorAxis> make_tensor_axis(const TensorOptions& options, comm::Mesh& mesh,
                                                    int64_t num_tokens) {
    if (mesh.degree(layout::Axis::Tensor) == 1) return std::make_unique<model::TensorAxis>();
    comm::Communicator& group = mesh.group(layout::Axis::Tensor);
    if (options.overlap_products) return std::make_unique<OverlappedTensorAxis>(group, num_tokens);
    return std::make_unique<TensorParallelAxis>(group, num_tokens);
}

at::Tensor TensorParallelAxis::gather_rows(const at::Tensor& x) const {
    return GatheredRows(group_, x, num_tokens_).take();
}

std::unique_ptr<model::ComingRows> TensorParallelAxis::start_gather(const at::Tensor& x) const {
    return std::make_unique<GatheredRows>(group_, x, num_tokens_);
}

at::Tensor TensorParallelAxis::reduce_rows(const at::Tensor& partial) const {
    const int64_t num_rows = largest_share(num_tokens_);
    at::Tensor own = at::empty({num_rows, partial.size(1)}, partial.options());
    group_.run({.kind = OpKind::ReduceScatter,
                .out = own,
                .in = padded(partial, /*dim=*/0, num_rows * group_.size())});
    return own;
}

at::Tensor TensorParallelAxis::gather_columns(const at::Tensor& x, int64_t num_columns) const {
    const int64_t num_own = largest_share(num_columns);
    const at::Tensor all = at::empty({group_.size(), x.size(0), num_own}, x.options());
    group_.run({.kind = OpKind::AllGather, .out = all, .in = padded(x, /*dim=*/1, num_own)});
    return all.transpose(0, 1).reshape({x.size(0), -1}).narrow(1, 0, num_columns);
}

void TensorParallelAxis::sum(at::Tensor& values) const {
    group_.run({.kind = OpKind::AllReduce, .out = values, .in = values});
}

void TensorParallelAxis::max(at::Tensor& values) const {
    group_.run({.kind = OpKind::AllReduce, .out = values, .in = values, .reduction = comm::Reduction::Max});
}

OverlappedTensorAxis::OverlappedTensorAxis(comm::Communicator& group, int64_t num_tokens)
    : TensorParallelAxis(group, num_tokens) {
    group_.open_channels();
}

at::Tensor OverlappedTensorAxis::column(const at::Tensor& x, const ops::Stack& weight,
                                        const ops::Stack& bias) const {
    const at::Tensor y = at::empty({num_tokens_, weight.num_rows()}, x.options());
    gather_rows_and(
        [&](const at::Tensor& all, Range tokens) {
            ops::write_linear(rows_in(y, tokens), rows_in(all, tokens), weight, bias);
        },
        x);
    return y;
}

at::Tensor OverlappedTensorAxis::column_backward(const at::Tensor& dy, const ops::Stack& weight) const {
    return reduce_rows_of(
        [&](Range tokens) { return ops::linear_input_gradient(rows_in(dy, tokens), weight); });
}

at::Tensor OverlappedTensorAxis::row(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                     const at::Tensor& residual) const {
    const Range own = tokens_of(group_.rank());
    return reduce_rows_of([&](Range tokens) {
        const at::Tensor part = rows_in(x, tokens);
        if (tokens.begin != own.begin) return ops::linear(part, weight);
        return ops::add_linear(residual.narrow(0, 0, own.size), part, weight, bias);
    });
}

model::TensorAxis::RowGradient OverlappedTensorAxis::row_backward(const at::Tensor& dy,
                                                                  const at::Tensor& weight) const {
    const at::Tensor dx = at::empty({num_tokens_, weight.size(1)}, dy.options());
    const at::Tensor dy_all = gather_rows_and(
        [&](const at::Tensor& all, Range tokens) {
            ops::write_linear_input_gradient(rows_in(dx, tokens), rows_in(all, tokens), weight);
        },
        dy);
    return {dx, dy_all};
}

at::Tensor OverlappedTensorAxis::gather_rows_and(Use use, const at::Tensor& x) const {
    at::Tensor all = at::empty({x.size(0) * group_.size(), x.size(1)}, x.options());
    const auto rows_of = [&](int rank) { return all.narrow(0, rank * x.size(0), x.size(0)); };
    rows_of(group_.rank()).copy_(x);
    for (int turn = 0; turn < group_.size(); ++turn) {
        const int rank = rank_before(turn);
        comm::Pending next;
        if (turn + 1 < group_.size()) next = exchange(rows_of(rank), rows_of(rank_before(turn + 1)));
        use(all, tokens_of(rank));
        next.wait();
    }
    return all.narrow(0, 0, num_tokens_);
}

at::Tensor OverlappedTensorAxis::reduce_rows_of(Make make) const {
    at::Tensor sum;  // of the ranks so far, for the rows of the turn before
    for (int turn = 0; turn < group_.size(); ++turn) {
        at::Tensor received;
        comm::Pending exchanged;
        if (turn > 0) {
            received = at::empty_like(sum);
            exchanged = exchange(sum, received);
        }
        at::Tensor product =
            padded(make(tokens_of(rank_before(turn + 1))), /*dim=*/0, largest_share(num_tokens_));
        exchanged.wait();
        sum = received.defined() ? product.add_(received) : std::move(product);
    }
    return sum;
}

int OverlappedTensorAxis::rank_before(int distance) const {
    return (group_.rank() + 2 * group_.size() - distance) % group_.size();
}

comm::Pending OverlappedTensorAxis::exchange(const at::Tensor& out, const at::Tensor& in) const {
    const int size = group_.size(), rank = group_.rank();
    const Op ops[] = {{.kind = OpKind::Send, .in = out, .peer = (rank + 1) % size},
                      {.kind = OpKind::Receive, .out = in, .peer = (rank + size - 1) % size}};
    return group_.submit(ops);
}

}  // namespace argosy::parallel
