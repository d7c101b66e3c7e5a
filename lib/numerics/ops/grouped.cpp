#include "ops/grouped.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "ops/kernel_calls.h"
#include "ops/matmul.h"
#include "ops/planned_gpu.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

/// The matrices of the groups: [groups, out, in].
at::Tensor by_group(const at::Tensor& stack, const at::Tensor& counts) {
    const int64_t num_groups = counts.size(0);
    ARGOSY_CHECK(num_groups > 0 && stack.size(0) % num_groups == 0, "a stack of {} matrices for {} groups",
                 stack.size(0), num_groups);
    return stack.view({num_groups, stack.numel() / num_groups / stack.size(-1), stack.size(-1)});
}

std::vector<at::Tensor> by_group(at::TensorList stacks, const at::Tensor& counts) {
    std::vector<at::Tensor> made;
    for (const at::Tensor& stack : stacks) made.push_back(by_group(stack, counts));
    return made;
}

/// Calls multiply(group, rows) for each group; without data, for one of them, whose temporary tensors are
/// those of the others. REQUIRES: the caller notes the work of all groups.
template <class Multiply>
void for_each_group(int64_t num_rows, const at::Tensor& counts, const Multiply& multiply) {
    const WorkObserver unobserved([](const Work&) {});
    if (counts.is_meta()) return multiply(0, rows_of_groups(counts, num_rows, 0, 1));
    const at::Tensor readable = counts.cpu();
    const auto* of_groups = elements<int64_t>(readable);
    GroupRows rows = {0, 0};
    for (int64_t group = 0; group < counts.numel(); ++group) {
        rows = {rows.first + rows.count, of_groups[group]};
        ARGOSY_CHECK(rows.count >= 0 && rows.first + rows.count <= num_rows,
                     "group {} has {} rows from row {} on, of {} rows", group, rows.count, rows.first,
                     num_rows);
        multiply(group, rows);
    }
    ARGOSY_CHECK(rows.first + rows.count == num_rows, "the groups have {} of {} rows",
                 rows.first + rows.count, num_rows);
}

/// The ends of the groups' rows, as LibTorch's grouped product takes them.
at::Tensor ends_of(const at::Tensor& counts) { return counts.cumsum(0, at::kInt); }

/// LibTorch's product of all groups, [rows, columns] or [groups, rows, columns]; it has no form without data.
at::Tensor multiply_at_once(const at::Tensor& a, const at::Tensor& b, const at::Tensor& counts,
                            at::IntArrayRef shape) {
    if (a.numel() == 0) return at::zeros(shape, a.options());
    return a.is_meta() ? at::empty(shape, a.options()) : at::_grouped_mm(a, b, ends_of(counts));
}

/// Notes the products of all groups with `matrices` [groups, out, in]. `mean` has the sizes of one of them.
void note_groups(Work mean, int64_t num_rows, const at::Tensor& matrices,
                 std::initializer_list<at::Tensor> tensors) {
    mean.flops =
        2.0 * static_cast<double>(num_rows * matrices.size(1)) * static_cast<double>(matrices.size(2));
    note_products(mean, tensors);
}

int64_t mean_rows(const at::Tensor& x, const at::Tensor& counts) {
    return divide_up(x.size(0), counts.size(0));
}

at::Tensor in_rows(const at::Tensor& x, GroupRows rows) { return x.narrow(0, rows.first, rows.count); }

/// y = x W^T of one layer. `y` may be some columns of a wider matrix.
void write_layer(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight,
                 const at::Tensor& counts) {
    if (multiplies_groups_at_once(x, weight)) {
        y.copy_(multiply_at_once(x, weight.transpose(1, 2), counts, y.sizes()));
        return;
    }
    for_each_group(x.size(0), counts, [&](int64_t group, GroupRows rows) {
        if (rows.count > 0)
            write_linear(in_rows(y, rows), in_rows(x, rows), Stack::of(weight[group]), /*bias=*/{});
    });
}

/// The layers' columns of dy.
std::vector<at::Tensor> columns_of(const at::Tensor& dy, const std::vector<at::Tensor>& weights) {
    std::vector<at::Tensor> made;
    for (int64_t begin = 0; const at::Tensor& weight : weights) {
        made.push_back(dy.narrow(1, begin, weight.size(1)));
        begin += weight.size(1);
    }
    return made;
}

}  // namespace

bool multiplies_groups_at_once(const at::Tensor& a, const at::Tensor& b) {
    constexpr int64_t kAlignment = 8;  // 16 bytes
    return has_kernels(a) && counts_as_gpu(a) && a.scalar_type() == at::kBFloat16 &&
           a.size(-1) % kAlignment == 0 && b.size(-1) % kAlignment == 0;
}

GroupRows rows_of_groups(const at::Tensor& counts, int64_t num_rows, int64_t first_group,
                         int64_t num_groups) {
    if (counts.is_meta()) {
        const int64_t first = num_rows * first_group / counts.numel();
        return {first, num_rows * (first_group + num_groups) / counts.numel() - first};
    }
    const at::Tensor readable = counts.cpu();
    const auto* of_groups = elements<int64_t>(readable);
    return {std::accumulate(of_groups, of_groups + first_group, int64_t{0}),
            std::accumulate(of_groups + first_group, of_groups + first_group + num_groups, int64_t{0})};
}

at::Tensor grouped_linear(const at::Tensor& x, at::TensorList weights, const at::Tensor& counts) {
    const std::vector<at::Tensor> layers = by_group(weights, counts);
    int64_t num_columns = 0;
    for (const at::Tensor& weight : layers) num_columns += weight.size(1);
    at::Tensor y = at::empty({x.size(0), num_columns}, x.options());
    const std::vector<at::Tensor> columns = columns_of(y, layers);
    for (size_t i = 0; i < layers.size(); ++i) {
        const at::Tensor& weight = layers[i];
        note_groups({.rows = mean_rows(x, counts), .columns = weight.size(1), .terms = x.size(1)}, x.size(0),
                    weight, {x, weight, columns[i]});
        write_layer(columns[i], x, weight, counts);
    }
    return y;
}

at::Tensor grouped_input_gradient(const at::Tensor& dy, at::TensorList weights, const at::Tensor& counts) {
    const std::vector<at::Tensor> layers = by_group(weights, counts), columns = columns_of(dy, layers);
    const int64_t num_rows = dy.size(0), in = layers[0].size(2);
    at::Tensor dx = at::empty({num_rows, in}, dy.options());
    for (size_t i = 0; i < layers.size(); ++i) {
        note_groups({.rows = mean_rows(dy, counts), .columns = in, .terms = layers[i].size(1)}, num_rows,
                    layers[i], {columns[i], layers[i], dx});
    }
    const auto fits = [&](const at::Tensor& column) { return multiplies_groups_at_once(column, dx); };
    if (std::ranges::all_of(columns, fits)) {
        dx.copy_(multiply_at_once(columns[0], layers[0], counts, dx.sizes()));
        for (size_t i = 1; i < layers.size(); ++i)
            dx.add_(multiply_at_once(columns[i], layers[i], counts, dx.sizes()));
        return dx;
    }
    for_each_group(num_rows, counts, [&](int64_t group, GroupRows rows) {
        if (rows.count == 0) return;
        Stack stack;
        for (const at::Tensor& weight : layers) stack.parts.push_back(weight[group]);
        write_linear_input_gradient(in_rows(dx, rows), in_rows(dy, rows), stack);
    });
    return dx;
}

void grouped_weight_gradient(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& counts, bool accumulate) {
    const at::Tensor sums = by_group(out, counts);
    note_groups({.rows = sums.size(1), .columns = sums.size(2), .terms = mean_rows(x, counts)}, x.size(0),
                sums, {dy, x, out});
    if (multiplies_groups_at_once(dy, x)) {
        const at::Tensor gradient = multiply_at_once(dy.t(), x, counts, sums.sizes());
        accumulate ? sums.add_(gradient) : sums.copy_(gradient);
        return;
    }
    for_each_group(x.size(0), counts, [&](int64_t group, GroupRows rows) {
        at::Tensor sum = sums[group];
        if (rows.count > 0) {
            linear_weight_gradient(sum, in_rows(dy, rows), in_rows(x, rows), accumulate);
        } else if (!accumulate) {
            sum.zero_();
        }
    });
}

at::Tensor grouped_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& counts) {
    at::Tensor made = multiply_at_once(dy.t(), x, counts, {counts.size(0), dy.size(1), x.size(1)});
    note_groups({.rows = dy.size(1), .columns = x.size(1), .terms = mean_rows(x, counts)}, x.size(0), made,
                {dy, x, made});
    return made;
}

}  // namespace argosy::ops
