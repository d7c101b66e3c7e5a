#include "parallel/tensor_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/matmul.h"

namespace argosy::parallel {

using comm::Op;
using comm::OpKind;
using layout::Range;

namespace {

/// The first rows of the output of an operation that is under way.
class PendingRows : public model::ComingRows {
  public:
    PendingRows(comm::Communicator& group, const Op& op, int64_t num_rows)
        : rows_(op.out.narrow(0, 0, num_rows)), pending_(group.submit(op)) {}
    at::Tensor take() override {
        pending_.wait();
        return std::exchange(rows_, {});
    }

  private:
    at::Tensor rows_;
    comm::Pending pending_;
};

// The number of pieces of the head. The first gather and the last reduction overlap with nothing, and small
// pieces make slow products.
constexpr int64_t kMinPieces = 2, kMaxPieces = 4, kMinTokensOfPiece = 512;

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

at::Tensor TensorParallelAxis::gather_rows(const at::Tensor& x) const { return start_gather(x)->take(); }

std::unique_ptr<model::ComingRows> TensorParallelAxis::start_gather(const at::Tensor& x) const {
    const at::Tensor all = at::empty({x.size(0) * group_.size(), x.size(1)}, x.options());
    return std::make_unique<PendingRows>(group_,
                                         Op{.kind = OpKind::AllGather, .out = all, .in = x.contiguous()},
                                         std::min(all.size(0), num_tokens_));
}

at::Tensor TensorParallelAxis::reduce_rows(const at::Tensor& partial) const {
    return start_reduce(partial, largest_share(num_tokens_))->take();
}

std::unique_ptr<model::ComingRows> TensorParallelAxis::start_reduce(const at::Tensor& partial,
                                                                    int64_t num_rows) const {
    const at::Tensor own = at::empty({num_rows, partial.size(1)}, partial.options());
    return std::make_unique<PendingRows>(group_,
                                         Op{.kind = OpKind::ReduceScatter,
                                            .out = own,
                                            .in = padded(partial, /*dim=*/0, num_rows * group_.size())},
                                         num_rows);
}

at::Tensor TensorParallelAxis::targets_of(const Range& piece, const at::Tensor& targets) const {
    const int64_t num_rows = largest_share(num_tokens_), num_without = num_rows * group_.size() - num_tokens_;
    if (piece.size == num_rows) return targets;
    return at::cat({targets, at::full({num_without}, -1, targets.options())})
        .view({group_.size(), num_rows})
        .narrow(1, piece.begin, piece.size)
        .flatten();
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

std::vector<Range> OverlappedTensorAxis::pieces(int64_t num_rows) const {
    const int64_t wanted = std::clamp(num_tokens_ / kMinTokensOfPiece, kMinPieces, kMaxPieces);
    const auto number = static_cast<int>(std::min(wanted, num_rows));
    std::vector<Range> pieces;
    for (int i = 0; i < number; ++i) pieces.push_back(layout::chunk(num_rows, number, i));
    std::erase_if(pieces, [](const Range& piece) { return piece.size == 0; });
    return pieces;
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
