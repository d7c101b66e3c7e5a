// Writes a step's manifest, with a view of every tensor over the shards. A view that named every slab would
// be too large to read: a model of 405B parameters on 16,384 writers has 56 million slabs. Therefore the
// manifest has two levels of virtual datasets:
// 1. `elements/<type>` joins the datasets of this name of all shards. The shape is [grid..., longest];
//    `longest` is the largest number of elements of one shard. One mapping for each shard serves all tensors.
// 2. The view of a tensor maps slabs of `elements/<type>`. The slabs of a tensor begin at the same element in
//    all shards (ElementLayout), so one mapping can take all chunks of the last cuts at once.
#include <algorithm>
#include <utility>

#include "base/raw_file.h"
#include "checkpoint/output_file.h"
#include "checkpoint/save_plan.h"

namespace argosy::checkpoint {
namespace {

using h5::VirtualSource;
using layout::Slab;

/// The mappings of one tensor's view.
class TensorView {
  public:
    /// `shape`: the shape of `elements/<type>`. `begin`: the first element of the tensor's slabs in each
    /// shard.
    TensorView(const SavePlan& plan, const CutTensor& tensor, std::vector<int64_t> shape, int64_t begin)
        : plan_(plan), tensor_(tensor), shape_(std::move(shape)), begin_(begin) {}

    std::vector<VirtualSource> mappings() {
        from_ = {.offset = std::vector<int64_t>(shape_.size(), 0),
                 .size = std::vector<int64_t>(shape_.size(), 1)};
        add(0, layout::whole(tensor_.info.shape));
        return std::move(sources_);
    }

  private:
    /// Maps the slab that the cuts before cut `number` have left of the tensor.
    void add(size_t number, const Slab& slab) {
        if (slab.num_elements() == 0) return;
        if (number == tensor_.cuts.size()) return map(slab, slab.num_elements());
        if (joins(number, slab)) return add_joined(number, slab);
        const GridCut& cut = tensor_.cuts[number];
        const int stride = degree_of(plan_.grid, axes_of(tensor_, number)) / cut.parts;
        for (int index = 0; index < cut.parts; ++index) {
            select(number, cut.first + index * stride);
            add(number + 1, chunk_of(slab, cut, index));
        }
    }

    /// Selects the writers at one coordinate of a cut's axes.
    void select(size_t number, int64_t coordinate) {
        const std::span<const int> axes = axes_of(tensor_, number);
        for (size_t i = axes.size(); i-- > 0; coordinate /= plan_.grid[axes[i]]) {
            from_.offset[axes[i]] = coordinate % plan_.grid[axes[i]];
            from_.size[axes[i]] = 1;
        }
    }

    /// Selects all writers along the axes. Returns their number.
    int select_all(std::span<const int> axes) {
        for (const int axis : axes) {
            from_.offset[axis] = 0;
            from_.size[axis] = plan_.grid[axis];
        }
        return degree_of(plan_.grid, axes);
    }

    /// Whether one mapping can take the chunks of this cut and of all later cuts. This cut must cut dim 0
    /// into one chunk for each of its writers. A later cut must do the same, over later axes, or not cut. The
    /// chunks must have equal sizes, except for the last chunk of this cut.
    bool joins(size_t number, const Slab& slab) const {
        int64_t rows = 1;
        int last_axis = -1;
        for (size_t each = number; each < tensor_.cuts.size(); ++each) {
            const GridCut& cut = tensor_.cuts[each];
            const std::span<const int> axes = axes_of(tensor_, each);
            if (cut.parts == 1 && each > number) continue;
            if (cut.parts == 1 || cut.dim != 0 || cut.parts != degree_of(plan_.grid, axes)) return false;
            if (axes.front() < last_axis || (each > number && rows % cut.parts != 0)) return false;
            rows = each == number ? chunk_of(slab, cut, 0).size[0] : rows / cut.parts;
            last_axis = axes.back();
        }
        return true;
    }

    /// Maps all chunks of full size, with one mapping for each box that they fill on the axes of the cut,
    /// then the shorter last chunk by itself.
    void add_joined(size_t number, const Slab& slab) {
        const Slab before = from_;
        const std::span<const int> axes = axes_of(tensor_, number);
        const int64_t rows = chunk_of(slab, tensor_.cuts[number], 0).size[0];
        const int64_t num_chunks = slab.size[0] / rows;
        int64_t num_parts = 1;  // of each chunk
        for (size_t each = number + 1; each < tensor_.cuts.size(); ++each) {
            if (tensor_.cuts[each].parts > 1) {
                num_parts *= select_all(axes_of(tensor_, each));
            } else {
                select(each, tensor_.cuts[each].first);
            }
        }
        Slab rest = slab;
        int64_t begin = 0;
        for (size_t i = 0; i < axes.size(); ++i) {
            select(number, begin);
            const int64_t per_row = select_all(axes.subspan(i + 1)), count = (num_chunks - begin) / per_row;
            if (count == 0) continue;
            from_.size[axes[i]] = count;
            rest.size[0] = count * per_row * rows;
            map(rest, rest.num_elements() / (count * per_row * num_parts));
            rest.offset[0] += rest.size[0];
            begin += count * per_row;
        }
        rest.size[0] = slab.offset[0] + slab.size[0] - rest.offset[0];
        from_ = before;
        select(number, num_chunks);
        add(number + 1, rest);
        from_ = before;
    }

    void map(const Slab& slab, int64_t slab_elements) {
        from_.offset.back() = begin_;
        from_.size.back() = slab_elements;
        sources_.push_back({.file = ".",
                            .dataset = elements_name(tensor_.info.type),
                            .to = slab,
                            .shape = shape_,
                            .from = from_});
    }

    const SavePlan& plan_;
    const CutTensor& tensor_;
    std::vector<int64_t> shape_;
    int64_t begin_;
    Slab from_;  // the selection in `elements/<type>`, for the cuts that are made so far
    std::vector<VirtualSource> sources_;
};

/// The shape of `elements/<type>`. `num_elements`: the number of elements by writer.
std::vector<int64_t> view_shape(const SavePlan& plan, const std::vector<int64_t>& num_elements) {
    std::vector<int64_t> shape(plan.grid.begin(), plan.grid.end());
    shape.push_back(*std::ranges::max_element(num_elements));
    return shape;
}

void create_elements_view(h5::File& file, const SavePlan& plan, ElementType type,
                          const std::vector<int64_t>& num_elements) {
    const std::vector<int64_t> shape = view_shape(plan, num_elements);
    std::vector<VirtualSource> shards;
    for (int writer = 0; writer < plan.num_writers(); ++writer) {
        const int64_t length = num_elements[writer];
        if (length == 0) continue;
        Slab to{.offset = std::vector<int64_t>(shape.size(), 0),
                .size = std::vector<int64_t>(shape.size(), 1)};
        for (size_t axis = plan.grid.size(), rest = writer; axis-- > 0; rest /= plan.grid[axis])
            to.offset[axis] = static_cast<int64_t>(rest % plan.grid[axis]);
        to.size.back() = length;
        shards.push_back({.file = shard_name(writer, plan.num_writers()),
                          .dataset = elements_name(type),
                          .to = std::move(to),
                          .shape = {length},
                          .from = {{0}, {length}}});
    }
    file.create_virtual_dataset(elements_name(type), type, shape, shards);
}

void create_views(h5::File& file, const SavePlan& plan) {
    const ElementLayout elements = element_layout(plan);
    for (const auto& [type, num_elements] : elements.num_elements)
        if (*std::ranges::max_element(num_elements) > 0) create_elements_view(file, plan, type, num_elements);
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
        RawFile::count_progress();
        const TensorInfo& info = plan.tensors[i].info;
        if (info.num_elements() == 0) {
            file.create_dataset(info.name, info.type, info.shape);
            continue;
        }
        TensorView view(plan, plan.tensors[i], view_shape(plan, elements.num_elements.at(info.type)),
                        elements.begin[i]);
        file.create_virtual_dataset(info.name, info.type, info.shape, view.mappings());
    }
}

}  // namespace

void write_manifest(const std::filesystem::path& path, Manifest manifest, const std::vector<Asset>& assets) {
    const std::string_view format = manifest.plan.names_axes() ? kJointFormat : kFormat;
    const auto lay_out = [&](h5::File& file) {
        describe(file, FileKind::Manifest, format, manifest.description);
        manifest.assets = place_assets(file, assets);
        create_views(file, manifest.plan);
        return to_json(manifest);
    };
    OutputFile out(path, FileKind::Manifest, lay_out, format);
    write_assets(out, manifest.assets, assets);
    std::vector<ByteRange> checked;
    for (const StoredAsset& asset : manifest.assets) checked.push_back({asset.at, asset.num_bytes});
    out.finish(to_json(manifest), std::move(checked));
}

}  // namespace argosy::checkpoint
