#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

namespace argosy::ops {
namespace {

struct LocalRows {
    at::Tensor row, present;  // 0 where not present
};

LocalRows local_rows(const at::Tensor& tokens, int64_t begin, int64_t num_rows) {
    const at::Tensor row = tokens - begin;
    const at::Tensor present = row.ge(0).logical_and(row.lt(num_rows));
    return {row * present, present};
}

}  // namespace

at::Tensor embedding(const at::Tensor& table, const at::Tensor& tokens, int64_t begin) {
    if (table.size(0) == 0) return at::zeros({tokens.size(0), table.size(1)}, table.options());
    const auto [row, present] = local_rows(tokens, begin, table.size(0));
    return table.index_select(0, row).mul_(present.unsqueeze(1));
}

void add_embedding_gradient(at::Tensor& out, const at::Tensor& dx, const at::Tensor& tokens, int64_t begin) {
    if (out.size(0) == 0) return;
    const auto [row, present] = local_rows(tokens, begin, out.size(0));
    out.index_add_(0, row, dx.to(out.scalar_type()) * present.unsqueeze(1));
}

}  // namespace argosy::ops
