#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/zeros.h>

#include "ops/kernel_calls.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

/// For each token: its row in this rank's part of the table, or 0 if the row is absent there. Callers mask
/// the results of absent rows instead of multiplying them by 0, because NaN * 0 is NaN.
struct LocalRows {
    at::Tensor row, absent;
};

LocalRows local_rows(const at::Tensor& tokens, int64_t begin, int64_t num_rows) {
    const at::Tensor row = tokens - begin;
    const at::Tensor absent = row.lt(0) | row.ge(num_rows);
    return {row.masked_fill(absent, 0), absent};
}

at::Tensor kernel_lookup(const at::Tensor& table, const at::Tensor& tokens, int64_t begin) {
    const int64_t size = table.size(1);
    at::Tensor x = at::empty({tokens.size(0), size}, table.options());
    with_element_type(table.scalar_type(), [&]<class T>(T) {
        const T* rows = elements<T>(table);
        const auto* token = elements<int64_t>(tokens);
        T* out = mutable_elements<T>(x);
        const auto part = [&](int64_t first, int64_t end) {
            return kernels::Embedding<T>{.num_tokens = end - first,
                                         .row_size = size,
                                         .begin = begin,
                                         .num_rows = table.size(0),
                                         .tokens = token + first,
                                         .table = rows,
                                         .x = out + first * size};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::embedding, &kernels::GpuTypedKernels<T>::embedding, table,
                       tokens.size(0), size, part);
    });
    return x;
}

/// Adds the terms of each element in token order. On a processor, each thread adds some columns of all
/// tokens. On a GPU, a stable sort brings the positions of equal tokens together.
void kernel_gradient(at::Tensor& out, const at::Tensor& dx, const at::Tensor& tokens, int64_t begin) {
    const int64_t size = out.size(1), num_tokens = tokens.size(0);
    with_element_type(dx.scalar_type(), [&]<class T>(T) {
        const T* in = elements<T>(dx);
        const auto* token = elements<int64_t>(tokens);
        auto* sums = mutable_elements<float>(out);
        const auto columns = [&](int64_t first, int64_t end) {
            return kernels::EmbeddingGradient<T>{.num_tokens = num_tokens,
                                                 .row_size = end - first,
                                                 .begin = begin,
                                                 .num_rows = out.size(0),
                                                 .row_stride = size,
                                                 .tokens = token,
                                                 .dx = in + first,
                                                 .sums = sums + first};
        };
        if (gpu::holds(dx)) {
            const auto [sorted, positions] = tokens.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
            kernels::EmbeddingGradient<T> all = columns(0, size);
            all.tokens = elements<int64_t>(sorted);
            return gpu_kernels<T>().embedding_gradient(all, elements<int64_t>(positions),
                                                       gpu::current_stream());
        }
        run_on_parts(dx, size, min_rows_per_thread(num_tokens), [&](int64_t first, int64_t end) {
            kernels::table().of<T>().embedding_gradient(columns(first, end));
        });
    });
}

}  // namespace

at::Tensor embedding(const at::Tensor& table, const at::Tensor& tokens, int64_t begin) {
    if (table.size(0) == 0) return at::zeros({tokens.size(0), table.size(1)}, table.options());
    if (has_kernels(table)) {
        at::Tensor x = kernel_lookup(table.contiguous(), tokens.contiguous(), begin);
        note_pass({x, x});  // each row is read once
        return x;
    }
    const auto [row, absent] = local_rows(tokens, begin, table.size(0));
    return at::index(table, {row}).masked_fill_(absent.unsqueeze(1), 0);
}

void add_embedding_gradient(at::Tensor& out, const at::Tensor& dx, const at::Tensor& tokens, int64_t begin) {
    note_pass({dx, dx, dx});
    if (out.size(0) == 0) return;
    if (has_kernels(dx) && out.scalar_type() == at::kFloat && out.is_contiguous()) {
        return kernel_gradient(out, dx.contiguous(), tokens.contiguous(), begin);
    }
    const auto [row, absent] = local_rows(tokens, begin, out.size(0));
    out.index_add_(0, row, dx.to(out.scalar_type()).masked_fill(absent.unsqueeze(1), 0));
}

}  // namespace argosy::ops
