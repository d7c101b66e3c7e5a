#include "model/weight_work.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/grouped.h"
#include "ops/matmul.h"
#include "ops/numerics.h"
#include "ops/sums.h"

namespace argosy::model {
namespace {

/// Returns the sum, to which a gradient can then be added. Zeroes the sum first if it is empty.
at::Tensor& started(GradientSum& gradient) { return gradient.empty ? gradient.sum.zero_() : gradient.sum; }

/// Of a gradient in fp32 that is added to a sum in bf16.
int64_t max_elements_at_once(const at::Tensor& x) {
    constexpr int64_t kMaxElements = 64 << 20;  // 256 MiB: enough to keep a GPU's products efficient
    return std::min(kMaxElements, ops::max_temporary_elements(x));
}

}  // namespace

void WeightWork::add_product(Place place, ops::Operand dy, ops::Operand x, const ops::Recipe& recipe) {
    dy.keep_for_sums_over_rows();
    x.keep_for_sums_over_rows();
    items_.push_back({.kind = Kind::Product,
                      .place = place,
                      .dy = std::move(dy),
                      .other = std::move(x),
                      .recipe = &recipe});
}

void WeightWork::add_product(Place place, ops::Operand dy, ops::Operand x, const ops::Recipe& recipe,
                             const TensorAxis& axis) {
    dy.keep_for_sums_over_rows();
    items_.push_back({.kind = Kind::Product,
                      .place = place,
                      .dy = std::move(dy),
                      .other = std::move(x),
                      .recipe = &recipe,
                      .axis = &axis});
}

void WeightWork::add_grouped_product(Place place, at::Tensor dy, at::Tensor x, at::Tensor counts) {
    items_.push_back({Kind::GroupedProduct, place, std::move(dy), std::move(x), std::move(counts)});
}

void WeightWork::add_row_sum(Place place, at::Tensor dy) { items_.push_back({Kind::RowSum, place, dy, {}}); }

void WeightWork::add_value(Place place, at::Tensor gradient) {
    items_.push_back({Kind::Value, place, gradient, {}});
}

void WeightWork::add_lookup(Place place, at::Tensor dx, at::Tensor tokens, int64_t begin,
                            const TensorAxis& axis) {
    items_.push_back(
        {.kind = Kind::Lookup, .place = place, .dy = dx, .other = tokens, .begin = begin, .axis = &axis});
}

void WeightWork::start_gathers() {
    for (Item& item : items_) {
        if (item.axis == nullptr) continue;
        item.coming = std::exchange(item.axis, nullptr)
                          ->start_gather(std::exchange(item.rows(), {}), item.place.layers);
    }
}

void WeightWork::run(const Gradients& gradients) {
    start_gathers();
    const auto run_item = [&](const Item& item) { run(cast(item), gradients); };
    std::vector<Item*> waiting;
    for (Item& item : items_) {
        if (item.coming) {
            waiting.push_back(&item);
        } else {
            run_item(item);
        }
    }
    for (Item* item : waiting) {
        item->rows() = std::exchange(item->coming, nullptr)->take();
        run_item(*item);
    }
}

/// The item with the casts that its operands still lack. The item itself keeps its tensors.
WeightWork::Item WeightWork::cast(const Item& item) {
    Item ready = item;
    if (item.kind != Kind::Product) return ready;
    ready.dy = ops::cast(item.dy, item.recipe->weight_gradient.left, ops::SumOver::Rows);
    ready.other = ops::cast(item.other, item.recipe->weight_gradient.right, ops::SumOver::Rows);
    return ready;
}

void WeightWork::run(const Item& item, const Gradients& gradients) {
    const auto sums = gradients[item.place];
    const bool grouped = item.kind == Kind::GroupedProduct;
    if (grouped && sums.size() > 1) return run_parts(item, sums);
    if (sums[0]->rounding) return grouped ? add_rounded_groups(item, *sums[0]) : add_rounded(item, sums);
    const auto joined = gradients.joined.find(item.place.first);
    if (sums.size() > 1 && joined == gradients.joined.end()) return run_parts(item, sums);
    GradientSum all{sums.size() > 1 ? joined->second : sums[0]->sum, sums[0]->empty};
    add(item, all);
    for (GradientSum* each : sums) each->count_gradient();
}

/// Adds the gradient of a join to sums that lie apart.
void WeightWork::run_parts(const Item& item, std::span<GradientSum* const> gradients) {
    for (int64_t begin = 0; GradientSum * each : gradients) {
        const bool grouped = item.kind == Kind::GroupedProduct;
        const int64_t num_rows = each->sum.numel() / std::max<int64_t>(1, each->sum.size(-1));
        const int64_t columns = grouped ? num_rows / item.counts.size(0) : each->sum.size(0);
        Item part = item;
        part.dy = item.dy.narrow(1, begin, columns);
        if (grouped && each->rounding) {
            add_rounded_groups(part, *each);
        } else {
            add(part, *each);
            each->count_gradient();
        }
        begin += columns;
    }
}

void WeightWork::add(const Item& item, GradientSum& gradient) {
    switch (item.kind) {
        case Kind::Product:
            ops::linear_weight_gradient(gradient.sum, item.dy, item.other, !gradient.empty,
                                        item.recipe->accumulation);
            break;
        case Kind::GroupedProduct:
            ops::grouped_weight_gradient(gradient.sum, item.dy.values, item.other.values, item.counts,
                                         !gradient.empty);
            break;
        case Kind::RowSum:
            ops::add_row_sum(started(gradient), item.dy.values);
            break;
        case Kind::Value:
            started(gradient).add_(item.dy.values);
            break;
        case Kind::Lookup:
            ops::add_embedding_gradient(started(gradient), item.dy.values, item.other.values, item.begin);
            break;
    }
}

int64_t WeightWork::rows_at_once(int64_t num_rows, int64_t row_size, const at::Tensor& x) {
    return ops::rows_at_once(num_rows, max_elements_at_once(x) / std::max<int64_t>(1, row_size));
}

/// Adds the item's gradient to sums in bf16, whose rows in this order are the gradient's rows. A product with
/// a bf16 result would be rounded to nearest, which loses small additions; so the gradient is computed in
/// fp32, some rows at a time, in a workspace.
void WeightWork::add_rounded(const Item& item, std::span<GradientSum* const> gradients) {
    // 1. allocate the workspace: [rows, ...] in fp32
    const at::Tensor& sum = gradients[0]->sum;
    int64_t num_rows = 0;
    for (const GradientSum* each : gradients) num_rows += each->sum.size(0);
    const int64_t step = rows_at_once(num_rows, sum.stride(0), sum);
    std::vector<int64_t> shape = sum.sizes().vec();
    shape[0] = step;
    const at::Tensor workspace = at::empty(shape, sum.options().dtype(at::kFloat));

    for (int64_t begin = 0; begin < num_rows; begin += step) {
        // 2. compute rows [begin, end) of the gradient
        const int64_t end = std::min(begin + step, num_rows);
        GradientSum part{workspace.narrow(0, 0, end - begin)};
        add(rows_of(item, begin, end - begin), part);
        // 3. add the rows to the sums to which they belong: the rows of a sum begin at `first`
        for (int64_t first = 0; const GradientSum* each : gradients) {
            const int64_t own_begin = std::max(begin, first),
                          own_end = std::min(end, first + each->sum.size(0));
            if (own_begin < own_end) {
                each->add_rounded(part.sum.narrow(0, own_begin - begin, own_end - own_begin),
                                  own_begin - first);
            }
            first += each->sum.size(0);
        }
    }
    for (GradientSum* each : gradients) each->count_gradient();
}

/// The same for a product of groups, some groups at a time. Products of all groups at once come in bf16, and
/// some groups at a time are widened.
void WeightWork::add_rounded_groups(const Item& item, GradientSum& gradient) {
    const at::Tensor &dy = item.dy.values, &x = item.other.values, &counts = item.counts;
    const int64_t num_groups = counts.size(0), group_size = gradient.sum.numel() / num_groups;
    GradientSum by_group = gradient;
    by_group.sum = gradient.sum.view({num_groups, -1, x.size(1)});
    const bool at_once = ops::multiplies_groups_at_once(dy, x);
    const at::Tensor narrow = at_once ? ops::grouped_weight_gradient(dy, x, counts) : at::Tensor();
    const int64_t step =
        std::clamp<int64_t>(max_elements_at_once(x) / std::max<int64_t>(1, group_size), 1, num_groups);
    const at::Tensor workspace =
        at::empty({step, by_group.sum.size(1), x.size(1)}, x.options().dtype(at::kFloat));
    const at::Tensor readable = at_once || counts.is_meta() ? counts : counts.cpu();  // one wait for the GPU
    for (int64_t begin = 0; begin < num_groups; begin += step) {
        const int64_t count = std::min(step, num_groups - begin);
        const at::Tensor part = workspace.narrow(0, 0, count);
        if (at_once) {
            part.copy_(narrow.narrow(0, begin, count));
        } else {
            const auto [first_row, num_rows] = ops::rows_of_groups(readable, x.size(0), begin, count);
            ops::grouped_weight_gradient(part, dy.narrow(0, first_row, num_rows),
                                         x.narrow(0, first_row, num_rows), readable.narrow(0, begin, count),
                                         /*accumulate=*/false);
        }
        by_group.add_rounded(part, begin);
    }
    gradient.count_gradient();
}

/// The work that computes `count` rows of the item's gradient, from row `first` on.
WeightWork::Item WeightWork::rows_of(const Item& item, int64_t first, int64_t count) {
    Item part = item;
    switch (item.kind) {
        case Kind::GroupedProduct:  // add_rounded_groups() divides it
            break;
        case Kind::Product:
        case Kind::RowSum:
            part.dy = item.dy.narrow(1, first, count);
            break;
        case Kind::Value:
            part.dy = item.dy.narrow(0, first, count);
            break;
        case Kind::Lookup:
            part.begin += first;
            break;
    }
    return part;
}

}  // namespace argosy::model
