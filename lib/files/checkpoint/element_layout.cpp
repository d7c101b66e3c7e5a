#include "checkpoint/element_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

namespace argosy::checkpoint {
namespace {

/// The writers that hold a tensor. Tensors of one type that the same writers hold are laid out together.
struct Footprint {
    int64_t num_writers = 1;                // tensors of many writers come first, which leaves few gaps
    std::vector<std::pair<int, int>> axes;  // per axis: first coordinate, number of coordinates with a chunk
    ElementType type = ElementType::Float32;
    int64_t num_elements = 0;  // of the largest slab
    auto key() const { return std::tuple(-num_writers, axes, type); }
};

Footprint footprint_of(const CutTensor& tensor) {
    Footprint footprint{.type = tensor.info.type};
    layout::Slab largest = layout::whole(tensor.info.shape);
    for (const GridCut& cut : tensor.cuts) {
        // An upper bound, because a shorter chunk of an earlier axis may be cut into more chunks.
        const int64_t count = cut.parts == 1 ? 1 : std::min<int64_t>(cut.parts, largest.size[cut.dim]);
        footprint.axes.emplace_back(cut.first, static_cast<int>(count));
        footprint.num_writers *= count;
        largest = chunk_of(std::move(largest), cut, 0);
    }
    footprint.num_elements = largest.num_elements();
    return footprint;
}

void visit_writers(const std::vector<int>& grid, const CutTensor& tensor, const Footprint& footprint,
                   size_t axis, int64_t writer, const std::function<void(int64_t)>& visit) {
    if (axis == grid.size()) return visit(writer);
    const auto [first, count] = footprint.axes[axis];
    const int stride = grid[axis] / tensor.cuts[axis].parts;
    for (int index = 0; index < count; ++index)
        visit_writers(grid, tensor, footprint, axis + 1, writer * grid[axis] + first + index * stride, visit);
}

}  // namespace

ElementLayout element_layout(const SavePlan& plan) {
    ElementLayout result{.begin = std::vector<int64_t>(plan.tensors.size())};
    std::vector<Footprint> footprints;
    for (const CutTensor& tensor : plan.tensors) footprints.push_back(footprint_of(tensor));
    std::vector<size_t> order(plan.tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](size_t i) { return footprints[i].key(); });
    for (size_t i = 0; i < order.size();) {
        const Footprint& footprint = footprints[order[i]];
        const auto visit = [&](const std::function<void(int64_t)>& each) {
            visit_writers(plan.grid, plan.tensors[order[i]], footprint, 0, 0, each);
        };
        std::vector<int64_t>& ends = result.num_elements[footprint.type];
        ends.resize(plan.num_writers());
        int64_t end = 0;
        visit([&](int64_t writer) { end = std::max(end, ends[writer]); });
        size_t next = i;
        for (; next < order.size() && footprints[order[next]].key() == footprint.key(); ++next) {
            result.begin[order[next]] = end;
            end += footprints[order[next]].num_elements;
        }
        visit([&](int64_t writer) { ends[writer] = end; });
        i = next;
    }
    return result;
}

std::string elements_name(ElementType type) { return fmt::format("elements/{}", h5::name(type)); }

}  // namespace argosy::checkpoint
