#include "parallel/tensor_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/matmul.h"

namespace argosy::parallel {

using comm::Op;
using comm::OpKind;
using layout::Range;

namespace {

/// Rows that operations under way bring.
class PendingRows : public model::ComingRows {
  public:
    PendingRows(comm::Communicator& group, const std::vector<Op>& ops, ops::Operand rows)
        : rows_(std::move(rows)), pending_(group.submit(ops)) {}
    ops::Operand take() override {
        pending_.wait();
        return std::exchange(rows_, {});
    }

  private:
    ops::Operand rows_;
    comm::Pending pending_;
};

bool has_scales_of_rows(const ops::Operand& x) {
    return x.scaled() && (x.scale.scalar_type() == at::ScalarType::Float8_e8m0fnu || x.scaled_by_rows);
}

/// The shape of a rank's rows `own`, with those of all ranks.
std::array<int64_t, 2> shape_of_all(const comm::Communicator& group, const at::Tensor& own) {
    return {own.size(0) * group.size(), own.size(1)};
}

/// The rows of all ranks, not yet there: those of `values`, which has no values, and of scales.
ops::Operand empty_rows(const comm::Communicator& group, const ops::Operand& x, at::Tensor values) {
    if (!has_scales_of_rows(x)) return {std::move(values), x.scale, x.type};
    return {std::move(values), at::empty(shape_of_all(group, x.scale), x.scale.options()), x.type};
}

Op gather_op(const at::Tensor& all, const at::Tensor& own, const char* work) {
    return {.kind = OpKind::AllGather,
            .out = ops::for_transfer(all),
            .in = ops::for_transfer(own.contiguous()),
            .purpose = {work}};
}

void take_max(comm::Communicator& group, at::Tensor& values, const char* work) {
    group.run({.kind = OpKind::AllReduce,
               .out = values,
               .in = values,
               .reduction = comm::Reduction::Max,
               .purpose = {work}});
}

// The names of sums and maxima, for plans.
constexpr const char* kSoftmax = "softmax";
constexpr const char* kScale = "a scale of float8";

/// One rank of a tensor axis whose matrices are cut over a context axis.
class ContextScales : public model::TensorAxis {
  public:
    explicit ContextScales(comm::Communicator& parts) : parts_(parts) {}
    void max_of_parts(at::Tensor& values) const override { take_max(parts_, values, kScale); }

  private:
    comm::Communicator& parts_;
};

// The number of pieces of the head. The first gather and the last reduction overlap with nothing, and small
// pieces make slow products.
constexpr int64_t kMinPieces = 2, kMaxPieces = 4, kMinTokensOfPiece = 512;
constexpr int64_t kMinTokensOfUnit = 32;  // of which pieces consist: products of float8 sum over 16

at::Tensor rows_in(const at::Tensor& all, Range rows) { return all.narrow(0, rows.begin, rows.size); }
ops::Operand rows_in(const ops::Operand& all, Range rows) { return all.narrow(0, rows.begin, rows.size); }

/// Returns x with zeros after it, or x itself if it has that size.
at::Tensor padded(const at::Tensor& x, int dim, int64_t size) {
    if (x.size(dim) == size) return x.contiguous();
    std::vector<int64_t> padding = {x.size(0), x.size(1)};
    padding[dim] = size - x.size(dim);
    return at::cat({x, at::zeros(padding, x.options())}, dim);
}

}  // namespace

std::unique_ptr<model::TensorAxis> make_tensor_axis(const TensorOptions& options, comm::Mesh& mesh,
                                                    int64_t num_tokens, const ProductCasts& casts) {
    constexpr layout::AxisSet kParts = {layout::Axis::Tensor, layout::Axis::Context};
    const bool over_context = casts.has_scales_of_matrices() && mesh.degree(layout::Axis::Context) > 1;
    if (mesh.degree(layout::Axis::Tensor) == 1) {
        if (!over_context) return std::make_unique<model::TensorAxis>();
        mesh.group(kParts).open_collectives(comm::Collectives::Reductions);
        return std::make_unique<ContextScales>(mesh.group(kParts));
    }
    comm::Communicator& group = mesh.group(layout::Axis::Tensor);
    comm::Communicator& parts = over_context ? mesh.group(kParts) : group;
    group.open_collectives(comm::Collectives::All);
    if (over_context) parts.open_collectives(comm::Collectives::Reductions);
    if (!options.overlap_products) return std::make_unique<TensorParallelAxis>(group, parts, num_tokens);
    const bool blocks = casts.recipe != nullptr && casts.recipe->has_blocks();
    return std::make_unique<OverlappedTensorAxis>(group, parts, num_tokens,
                                                  blocks ? casts.recipe->weight_gradient.left.block_size : 1);
}

ops::Operand TensorParallelAxis::gather(const ops::Operand& x, const char* work) const {
    return start_gather(x, work)->take();
}

std::unique_ptr<model::ComingRows> TensorParallelAxis::start_gather(const ops::Operand& x,
                                                                    const char* work) const {
    const ops::Operand all =
        empty_rows(group_, x, at::empty(shape_of_all(group_, x.values), x.values.options()));
    std::vector<Op> ops = {gather_op(all.values, x.values, work)};
    if (has_scales_of_rows(x)) ops.push_back(gather_op(all.scale, x.scale, work));
    return std::make_unique<PendingRows>(group_, ops,
                                         all.narrow(0, 0, std::min(all.values.size(0), num_tokens_)));
}

at::Tensor TensorParallelAxis::reduce_rows(const at::Tensor& partial, const char* work) const {
    return start_reduce(partial, largest_share(num_tokens_), work)->take().values;
}

std::unique_ptr<model::ComingRows> TensorParallelAxis::start_reduce(const at::Tensor& partial,
                                                                    int64_t num_rows,
                                                                    const char* work) const {
    const at::Tensor own = at::empty({num_rows, partial.size(1)}, partial.options());
    const Op reduce{.kind = OpKind::ReduceScatter,
                    .out = own,
                    .in = padded(partial, /*dim=*/0, num_rows * group_.size()),
                    .purpose = {work}};
    return std::make_unique<PendingRows>(group_, std::vector{reduce}, own);
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
    group_.run(
        {.kind = OpKind::AllGather, .out = all, .in = padded(x, /*dim=*/1, num_own), .purpose = {kSoftmax}});
    return all.transpose(0, 1).reshape({x.size(0), -1}).narrow(1, 0, num_columns);
}

void TensorParallelAxis::sum(at::Tensor& values, const char* work) const {
    group_.run({.kind = OpKind::AllReduce, .out = values, .in = values, .purpose = {work}});
}

void TensorParallelAxis::max(at::Tensor& values) const { take_max(group_, values, kSoftmax); }

void TensorParallelAxis::max_of_parts(at::Tensor& values) const { take_max(parts_, values, kScale); }

OverlappedTensorAxis::OverlappedTensorAxis(comm::Communicator& group, comm::Communicator& parts,
                                           int64_t num_tokens, int64_t block_tokens)
    : TensorParallelAxis(group, parts, num_tokens), block_tokens_(block_tokens) {
    group_.open_ring();
}

at::Tensor OverlappedTensorAxis::column(const ops::Operand& x, const ops::Stack& weight,
                                        const ops::Stack& bias) const {
    const auto& [left, right] = weight.recipe->forward;
    const ops::Stack cast_weight = cast(weight, right, SumOver::Columns);
    const at::Tensor y = at::empty({num_tokens_, weight.num_rows()}, x.values.options().dtype(x.type));
    gather_and(
        [&](const ops::Operand& all, Range tokens) {
            ops::write_linear(rows_in(y, tokens), rows_in(all, tokens), cast_weight, bias);
        },
        cast(x, left, SumOver::Columns), weight.name);
    return y;
}

model::TensorAxis::ColumnGradient OverlappedTensorAxis::column_backward(const at::Tensor& dy,
                                                                        const at::Tensor& largest,
                                                                        const ops::Stack& weight) const {
    const auto& [left, right] = weight.recipe->input_gradient;
    const ops::Operand kept = cast_dy_if_shared(dy, *weight.recipe, Rows::All, largest);
    const ops::Operand operand = cast(kept, left, SumOver::Columns);
    const ops::Stack cast_weight = cast(weight, right, SumOver::Rows);
    return {
        reduce_rows_of(
            [&](Range tokens) { return ops::linear_input_gradient(rows_in(operand, tokens), cast_weight); },
            weight.name),
        kept};
}

at::Tensor OverlappedTensorAxis::row_sum(const ops::Operand& x, const ops::Stack& weight,
                                         const char* work) const {
    return reduce_rows_of([&](Range tokens) { return ops::linear(rows_in(x, tokens), weight); }, work);
}

model::TensorAxis::RowGradient OverlappedTensorAxis::row_backward(const at::Tensor& dy,
                                                                  const ops::Stack& weight) const {
    const auto& [left, right] = weight.recipe->input_gradient;
    const ops::Stack cast_weight = cast(weight, right, SumOver::Rows);
    const at::Tensor dx = at::empty({num_tokens_, weight.num_columns()}, dy.options());
    ops::Operand dy_all = gather_and(
        [&](const ops::Operand& all, Range tokens) {
            ops::write_linear_input_gradient(rows_in(dx, tokens),
                                             cast(rows_in(all, tokens), left, SumOver::Columns), cast_weight);
        },
        cast_dy_if_shared(dy, *weight.recipe, Rows::Own), weight.name);
    return {dx, dy_all};
}

std::vector<Range> OverlappedTensorAxis::pieces(int64_t num_rows) const {
    const int64_t wanted = std::clamp(num_tokens_ / kMinTokensOfPiece, kMinPieces, kMaxPieces);
    const int64_t unit_rows =
        std::lcm(block_tokens_, kMinTokensOfUnit / std::gcd<int64_t>(kMinTokensOfUnit, group_.size()));
    const bool divides = num_rows % unit_rows == 0;
    if (!divides && block_tokens_ > 1) return {{0, num_rows}};
    const int64_t unit = divides ? unit_rows : 1, num_units = num_rows / unit;
    const auto number = static_cast<int>(std::min(wanted, num_units));
    std::vector<Range> pieces;
    for (int i = 0; i < number; ++i) {
        const Range units = layout::chunk(num_units, number, i);
        pieces.push_back({units.begin * unit, units.size * unit});
    }
    std::erase_if(pieces, [](const Range& piece) { return piece.size == 0; });
    return pieces;
}

ops::Operand OverlappedTensorAxis::gather_and(Use use, const ops::Operand& x, const char* work) const {
    ops::Operand all =
        empty_rows(group_, x, group_.make_ring_tensor(shape_of_all(group_, x.values), x.values.options()));
    if (has_scales_of_rows(x)) group_.run(gather_op(all.scale, x.scale, kScale));
    const int64_t num_rows = x.values.size(0);
    const auto rows_of = [&](int rank) {
        return ops::for_transfer(all.values).narrow(0, rank * num_rows, num_rows);
    };
    rows_of(group_.rank()).copy_(ops::for_transfer(x.values));
    for (int turn = 0; turn < group_.size(); ++turn) {
        const int rank = rank_before(turn);
        comm::Pending next;
        if (turn + 1 < group_.size())
            next = exchange(rows_of(rank), /*there=*/rows_of(rank), rows_of(rank_before(turn + 1)),
                            {work, OpKind::AllGather});
        use(all, tokens_of(rank));
        next.wait();
    }
    return all.narrow(0, 0, num_tokens_);
}

at::Tensor OverlappedTensorAxis::reduce_rows_of(Make make, const char* work) const {
    at::Tensor sum;  // of the ranks so far, for the rows of the turn before
    for (int turn = 0; turn < group_.size(); ++turn) {
        at::Tensor received;
        comm::Pending exchanged;
        if (turn > 0) {
            received = group_.make_ring_tensor(sum.sizes(), sum.options());
            exchanged = exchange(sum, /*there=*/received, received, {work, OpKind::ReduceScatter});
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

comm::Pending OverlappedTensorAxis::exchange(const at::Tensor& out, const at::Tensor& there,
                                             const at::Tensor& in, const comm::Purpose& purpose) const {
    const int size = group_.size(), rank = group_.rank();
    const Op ops[] = {
        {.kind = OpKind::Send, .out = there, .in = out, .peer = (rank + 1) % size, .purpose = purpose},
        {.kind = OpKind::Receive, .out = in, .peer = (rank + size - 1) % size, .purpose = purpose}};
    return group_.submit(ops);
}

}  // namespace argosy::parallel
