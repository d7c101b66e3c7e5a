#include "checkpoint/save_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace argosy::checkpoint {
namespace {

constexpr size_t kMaxAxes = 8;
constexpr int kMaxInFolder = 1000;                     // shards in one folder
constexpr int64_t kMaxCutElements = int64_t{1} << 62;  // size of a cut dim; avoids overflow in chunk sizes

/// The number of writers of a grid: the product of its degrees. None if a degree is below 1 or the product
/// exceeds an int.
std::optional<int> product(const std::vector<int>& grid) {
    int64_t count = 1;
    for (const int degree : grid) {
        if (degree < 1) return std::nullopt;
        count *= degree;
        if (count > std::numeric_limits<int>::max()) return std::nullopt;
    }
    return static_cast<int>(count);
}

bool fits(const TensorInfo& info, const GridCut& cut, int degree) {
    if (cut.parts < 1 || degree % cut.parts != 0 || cut.first < 0 || cut.first >= degree / cut.parts)
        return false;
    if (cut.parts == 1) return true;
    return cut.dim >= 0 && cut.dim < std::ssize(info.shape) && info.shape[cut.dim] <= kMaxCutElements;
}

class SlabVisitor {
  public:
    SlabVisitor(const std::vector<int>& grid, const CutTensor& tensor, const layout::Slab& wanted,
                const std::function<void(int, const layout::Slab&)>& visit)
        : grid_(grid), tensor_(tensor), wanted_(wanted), visit_(visit) {}

    void run(size_t axis, int writer, const layout::Slab& slab) {
        if (axis == grid_.size()) return visit_(writer, slab);
        const GridCut& cut = tensor_.cuts[axis];
        const auto [begin, end] = overlapping(cut, slab);
        for (int index = begin; index < end; ++index) {
            run(axis + 1, writer * grid_[axis] + cut.first + index * (grid_[axis] / cut.parts),
                chunk_of(slab, cut, index));
        }
    }

  private:
    /// The range of chunks of `slab` that share elements with `wanted_`. REQUIRES: `slab` shares elements
    /// with `wanted_`.
    std::pair<int, int> overlapping(const GridCut& cut, const layout::Slab& slab) const {
        if (cut.parts == 1) return {0, 1};
        const int64_t size = layout::chunk(slab.size[cut.dim], cut.parts, 0).size,
                      offset = slab.offset[cut.dim];
        const int64_t begin = std::max(wanted_.offset[cut.dim], offset) - offset;
        const int64_t end =
            std::min(wanted_.offset[cut.dim] + wanted_.size[cut.dim], offset + slab.size[cut.dim]) - offset;
        return {static_cast<int>(begin / size), static_cast<int>((end - 1) / size + 1)};
    }

    const std::vector<int>& grid_;
    const CutTensor& tensor_;
    const layout::Slab& wanted_;
    const std::function<void(int, const layout::Slab&)>& visit_;
};

/// The writers that hold a tensor. Tensors of one type that the same writers hold are laid out together.
struct Footprint {
    int64_t num_writers = 1;                // tensors of many writers come first, which leaves few gaps
    std::vector<std::pair<int, int>> axes;  // per axis: first coordinate, number of coordinates with a chunk
    ElementType type = ElementType::Float32;
    std::vector<int> parts;    // per axis: those of the cut, if several coordinates have a chunk
    int64_t num_elements = 0;  // of the largest slab
    auto key() const { return std::tuple(-num_writers, axes, type, parts); }
};

Footprint footprint_of(const CutTensor& tensor) {
    Footprint footprint{.type = tensor.info.type};
    layout::Slab largest = layout::whole(tensor.info.shape);
    for (const GridCut& cut : tensor.cuts) {
        // An upper bound, because a shorter chunk of an earlier axis may be cut into more chunks.
        const int64_t count = cut.parts == 1 ? 1 : std::min<int64_t>(cut.parts, largest.size[cut.dim]);
        footprint.axes.emplace_back(cut.first, static_cast<int>(count));
        footprint.parts.push_back(count > 1 ? cut.parts : 1);
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

int SavePlan::num_writers() const { return product(grid).value_or(0); }

void check_plan(const SavePlan& plan, const std::string& place) {
    if (plan.grid.empty() || plan.grid.size() > kMaxAxes || !product(plan.grid))
        throw UserError("{}: {} is not a valid grid of writers", place, plan.grid);
    for (const CutTensor& tensor : plan.tensors) {
        bool valid = tensor.cuts.size() == plan.grid.size();
        for (size_t axis = 0; valid && axis < plan.grid.size(); ++axis)
            valid = fits(tensor.info, tensor.cuts[axis], plan.grid[axis]);
        if (valid) continue;
        throw UserError("{}: tensor '{}' of shape {} has cuts that do not fit the grid {}", place,
                        tensor.info.name, tensor.info.shape, plan.grid);
    }
}

Hash set_of(const Hash& nonce, const SavePlan& plan) {
    std::string text = fmt::format("{} {}\n", nonce.hex(), plan.grid);
    for (const CutTensor& tensor : plan.tensors) {
        text += fmt::format("{} {} {}", tensor.info.name, tensor.info.type_name(), tensor.info.shape);
        for (const GridCut& cut : tensor.cuts)
            text += fmt::format(" {},{},{}", cut.dim, cut.parts, cut.first);
        text += '\n';
    }
    return hash_of(text);
}

layout::Slab chunk_of(layout::Slab slab, const GridCut& cut, int index) {
    if (cut.parts == 1) return slab;
    const layout::Range chunk = layout::chunk(slab.size[cut.dim], cut.parts, index);
    slab.offset[cut.dim] += chunk.begin;
    slab.size[cut.dim] = chunk.size;
    return slab;
}

std::optional<layout::Slab> slab_of(const std::vector<int>& grid, const CutTensor& tensor, int writer) {
    layout::Slab slab = layout::whole(tensor.info.shape);
    int rest = product(grid).value_or(0);
    for (size_t axis = 0; axis < grid.size(); ++axis) {
        rest /= grid[axis];
        const GridCut& cut = tensor.cuts[axis];
        const int stride = grid[axis] / cut.parts, from_first = writer / rest % grid[axis] - cut.first;
        if (from_first < 0 || from_first % stride != 0) return std::nullopt;
        slab = chunk_of(std::move(slab), cut, from_first / stride);
    }
    return slab.num_elements() > 0 ? std::optional(slab) : std::nullopt;
}

std::vector<TensorSlab> slabs_of(const SavePlan& plan, int writer) {
    std::vector<TensorSlab> slabs;
    for (const CutTensor& tensor : plan.tensors) {
        if (auto slab = slab_of(plan.grid, tensor, writer)) slabs.push_back({tensor.info, *std::move(slab)});
    }
    return slabs;
}

void for_each_slab(const std::vector<int>& grid, const CutTensor& tensor, const layout::Slab& wanted,
                   const std::function<void(int, const layout::Slab&)>& visit) {
    if (wanted.num_elements() == 0) return;
    SlabVisitor(grid, tensor, wanted, visit).run(0, 0, layout::whole(tensor.info.shape));
}

std::string shard_name(int writer, int num_writers) {
    const std::string name = fmt::format("shard-{:05}-of-{:05}.h5", writer, num_writers);
    return num_writers <= kMaxInFolder ? name : fmt::format("shards-{:05}/{}", writer / kMaxInFolder, name);
}

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
