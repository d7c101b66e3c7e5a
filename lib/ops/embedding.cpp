#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

namespace argosy::ops {
namespace {

struct LocalRows {
    at::Tensor row, absent;  // row 0 where absent: masked, not multiplied by 0, which a NaN would survive
};

LocalRows local_rows(const at::Tensor& tokens, int64_t begin, int64_t num_rows) {
    const at::Tensor row = tokens - begin;
    const at::Tensor absent = row.lt(0).logical_or(row.ge(num_rows));
    return {row.masked_fill(absent, 0), absent};
}

}  // namespace

at::Tensor embedding(const at::Tensor& table, const at::Tensor& tokens, int64_t begin) {
    if (table.size(0) == 0) return at::zeros({tokens.size(0), table.size(1)}, table.options());
    const auto [row, absent] = local_rows(tokens, begin, table.size(0));
    return table.index_select(0, row).masked_fill_(absent.unsqueeze(1), 0);
}

void add_embedding_gradient(at::Tensor& out, const at::Tensor& dx, const at::Tensor& tokens, int64_t begin) {
    if (out.size(0) == 0) return;
    const auto [row, absent] = local_rows(tokens, begin, out.size(0));
    out.index_add_(0, row, dx.to(out.scalar_type()).masked_fill(absent.unsqueeze(1), 0));
}

}  // namespace argosy::ops
