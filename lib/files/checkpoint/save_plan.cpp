#include "checkpoint/save_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
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

/// The coordinate of a writer on `axes`, which count as one axis. REQUIRES: `axes` ascend.
int coordinate_of(const std::vector<int>& grid, std::span<const int> axes, int writer) {
    int coordinate = 0, scale = 1;
    for (int axis = static_cast<int>(grid.size()); !axes.empty() && axis-- > 0; writer /= grid[axis]) {
        if (axis != axes.back()) continue;
        coordinate += writer % grid[axis] * scale;
        scale *= grid[axis];
        axes = axes.first(axes.size() - 1);
    }
    return coordinate;
}

/// The inverse: the number of the writer that is at `coordinate` on `axes`, and at 0 on the other axes.
int writer_at(const std::vector<int>& grid, std::span<const int> axes, int coordinate) {
    int writer = 0, stride = 1;
    for (int axis = static_cast<int>(grid.size()); !axes.empty() && axis-- > 0; stride *= grid[axis]) {
        if (axis != axes.back()) continue;
        writer += coordinate % grid[axis] * stride;
        coordinate /= grid[axis];
        axes = axes.first(axes.size() - 1);
    }
    return writer;
}

bool fits(const TensorInfo& info, const GridCut& cut, int degree) {
    if (cut.parts < 1 || degree % cut.parts != 0 || cut.first < 0 || cut.first >= degree / cut.parts)
        return false;
    if (cut.parts == 1) return true;
    return cut.dim >= 0 && cut.dim < std::ssize(info.shape) && info.shape[cut.dim] <= kMaxCutElements;
}

/// Why the cuts of a tensor do not fit the grid; empty if they fit.
std::string fault_of(const std::vector<int>& grid, const CutTensor& tensor) {
    const std::vector<GridCut>& cuts = tensor.cuts;
    const auto num_named = std::ranges::count_if(cuts, [](const GridCut& cut) { return !cut.axes.empty(); });
    if (num_named > 0 ? num_named != std::ssize(cuts) : cuts.size() != grid.size())
        return fmt::format("of {} cuts {} name axes", cuts.size(), num_named);
    std::vector<bool> seen(grid.size(), false);
    for (size_t number = 0; number < cuts.size(); ++number) {
        const std::span<const int> axes = axes_of(tensor, number);
        if (!std::ranges::is_sorted(axes)) return fmt::format("the axes {} do not ascend", axes);
        for (const int axis : axes) {
            if (axis < 0 || axis >= std::ssize(grid)) return fmt::format("there is no axis {}", axis);
            if (seen[axis]) return fmt::format("axis {} is named twice", axis);
            seen[axis] = true;
        }
        const auto& [dim, parts, first, named] = cuts[number];
        if (!fits(tensor.info, cuts[number], degree_of(grid, axes)))
            return fmt::format("cut {} is [{}, {}, {}]", number, dim, parts, first);
    }
    const auto missing = std::ranges::find(seen, false);
    return missing == seen.end() ? "" : fmt::format("no cut names axis {}", missing - seen.begin());
}

class SlabVisitor {
  public:
    SlabVisitor(const std::vector<int>& grid, const CutTensor& tensor, const layout::Slab& wanted,
                const std::function<void(int, const layout::Slab&)>& visit)
        : grid_(grid), tensor_(tensor), wanted_(wanted), visit_(visit) {}

    void run(size_t number, int writer, const layout::Slab& slab) {
        if (number == tensor_.cuts.size()) return visit_(writer, slab);
        const GridCut& cut = tensor_.cuts[number];
        const std::span<const int> axes = axes_of(tensor_, number);
        const int stride = degree_of(grid_, axes) / cut.parts;
        const auto [begin, end] = overlapping(cut, slab);
        for (int index = begin; index < end; ++index)
            run(number + 1, writer + writer_at(grid_, axes, cut.first + index * stride),
                chunk_of(slab, cut, index));
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
    int64_t num_writers = 1;                 // tensors of many writers come first, which leaves few gaps
    std::vector<std::pair<int, int>> heads;  // per cut: first coordinate, number of coordinates with a chunk
    ElementType type = ElementType::Float32;
    std::vector<std::vector<int>> steps;  // per cut: its axes, then the parts, which give the next coordinate
    int64_t num_elements = 0;             // of the largest slab
    auto key() const { return std::tuple(-num_writers, heads, type, steps); }
};

Footprint footprint_of(const CutTensor& tensor) {
    Footprint footprint{.type = tensor.info.type};
    layout::Slab largest = layout::whole(tensor.info.shape);
    for (const GridCut& cut : tensor.cuts) {
        // An upper bound, because a shorter chunk of an earlier cut may be cut into more chunks.
        const int64_t count = cut.parts == 1 ? 1 : std::min<int64_t>(cut.parts, largest.size[cut.dim]);
        footprint.heads.emplace_back(cut.first, static_cast<int>(count));
        footprint.steps.push_back(cut.axes);
        if (count > 1) footprint.steps.back().push_back(cut.parts);
        footprint.num_writers *= count;
        largest = chunk_of(std::move(largest), cut, 0);
    }
    footprint.num_elements = largest.num_elements();
    return footprint;
}

void visit_writers(const std::vector<int>& grid, const CutTensor& tensor, const Footprint& footprint,
                   size_t number, int writer, const std::function<void(int)>& visit) {
    if (number == tensor.cuts.size()) return visit(writer);
    const std::span<const int> axes = axes_of(tensor, number);
    const auto [first, count] = footprint.heads[number];
    const int stride = degree_of(grid, axes) / tensor.cuts[number].parts;
    for (int index = 0; index < count; ++index)
        visit_writers(grid, tensor, footprint, number + 1,
                      writer + writer_at(grid, axes, first + index * stride), visit);
}

}  // namespace

int SavePlan::num_writers() const { return product(grid).value_or(0); }

bool SavePlan::names_axes() const {
    return std::ranges::any_of(tensors, [](const CutTensor& tensor) {
        return !tensor.cuts.empty() && !tensor.cuts.front().axes.empty();
    });
}

void check_plan(const SavePlan& plan, const std::string& place) {
    if (plan.grid.empty() || plan.grid.size() > kMaxAxes || !product(plan.grid))
        throw UserError("{}: {} is not a valid grid of writers", place, plan.grid);
    for (const CutTensor& tensor : plan.tensors) {
        const std::string fault = fault_of(plan.grid, tensor);
        if (fault.empty()) continue;
        throw UserError("{}: tensor '{}' of shape {} has cuts that do not fit the grid {}: {}", place,
                        tensor.info.name, tensor.info.shape, plan.grid, fault);
    }
}

Hash set_of(const Hash& nonce, const SavePlan& plan) {
    std::string text = fmt::format("{} {}\n", nonce.hex(), plan.grid);
    for (const CutTensor& tensor : plan.tensors) {
        text += fmt::format("{} {} {}", tensor.info.name, tensor.info.type_name(), tensor.info.shape);
        for (const GridCut& cut : tensor.cuts) {
            text += fmt::format(" {},{},{}", cut.dim, cut.parts, cut.first);
            if (!cut.axes.empty()) text += fmt::format(",{}", cut.axes);
        }
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
    for (size_t number = 0; number < tensor.cuts.size(); ++number) {
        const GridCut& cut = tensor.cuts[number];
        const std::span<const int> axes = axes_of(tensor, number);
        const int stride = degree_of(grid, axes) / cut.parts;
        const int from_first = coordinate_of(grid, axes, writer) - cut.first;
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

std::span<const int> axes_of(const CutTensor& tensor, size_t number) {
    static constexpr std::array<int, kMaxAxes> kNumbers = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<int>& named = tensor.cuts[number].axes;
    return named.empty() ? std::span(kNumbers).subspan(number, 1) : std::span(named);
}

int degree_of(const std::vector<int>& grid, std::span<const int> axes) {
    int degree = 1;
    for (const int axis : axes) degree *= grid[axis];
    return degree;
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
        const auto visit = [&](const std::function<void(int)>& each) {
            visit_writers(plan.grid, plan.tensors[order[i]], footprint, 0, 0, each);
        };
        std::vector<int64_t>& ends = result.num_elements[footprint.type];
        ends.resize(plan.num_writers());
        int64_t end = 0;
        visit([&](int writer) { end = std::max(end, ends[writer]); });
        size_t next = i;
        for (; next < order.size() && footprints[order[next]].key() == footprint.key(); ++next) {
            result.begin[order[next]] = end;
            end += footprints[order[next]].num_elements;
        }
        visit([&](int writer) { ends[writer] = end; });
        i = next;
    }
    return result;
}

std::string elements_name(ElementType type) { return fmt::format("elements/{}", h5::name(type)); }

}  // namespace argosy::checkpoint
