// Writes a step's manifest, with a view of every tensor over the shards. A view that named every slab would
// be too large to read: a model of 405B parameters on 16,384 writers has 56 million slabs. Therefore the
// manifest has two levels of virtual datasets:
// 1. `elements/<type>` joins the datasets of this name of all shards. The shape is [grid..., longest];
//    `longest` is the largest number of elements of one shard. One mapping for each shard serves all tensors.
// 2. The view of a tensor maps slabs of `elements/<type>`. The slabs of a tensor begin at the same element in
//    all shards (ElementLayout), so one mapping can take all chunks of the last axes at once.
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
    /// Maps the slab that the axes before `axis` have cut from the tensor.
    void add(size_t axis, const Slab& slab) {
        if (slab.num_elements() == 0) return;
        if (axis == plan_.grid.size()) return map(slab, slab.num_elements());
        if (joins(axis, slab)) return add_joined(axis, slab);
        const GridCut& cut = tensor_.cuts[axis];
        for (int index = 0; index < cut.parts; ++index) {
            from_.offset[axis] = cut.first + index * (plan_.grid[axis] / cut.parts);
            add(axis + 1, chunk_of(slab, cut, index));
        }
    }

    /// Whether one mapping can take the chunks of `axis` and of all later axes. This axis must cut dim 0 into
    /// one chunk for each of its writers. A later axis must do the same, or not cut. The chunks must have
    /// equal sizes, except for the last chunk of `axis`.
    bool joins(size_t axis, const Slab& slab) const {
        int64_t rows = 1;
        for (size_t each = axis; each < plan_.grid.size(); ++each) {
            const GridCut& cut = tensor_.cuts[each];
            if (cut.parts == 1 && each > axis) continue;
            if (cut.parts == 1 || cut.dim != 0 || cut.parts != plan_.grid[each]) return false;
            if (each > axis && rows % cut.parts != 0) return false;
            rows = each == axis ? chunk_of(slab, cut, 0).size[0] : rows / cut.parts;
        }
        return true;
    }

    /// Maps all chunks of full size with one mapping, then the shorter last chunk by itself.
    void add_joined(size_t axis, const Slab& slab) {
        const int64_t rows = chunk_of(slab, tensor_.cuts[axis], 0).size[0];
        const int64_t num_chunks = slab.size[0] / rows;
        Slab joined = slab, rest = slab;
        joined.size[0] = num_chunks * rows;
        rest.offset[0] += joined.size[0];
        rest.size[0] -= joined.size[0];
        const Slab before = from_;
        from_.offset[axis] = 0;
        from_.size[axis] = num_chunks;
        int64_t num_slabs = num_chunks;
        for (size_t each = axis + 1; each < plan_.grid.size(); ++each) {
            from_.offset[each] = tensor_.cuts[each].first;
            from_.size[each] = tensor_.cuts[each].parts;
            num_slabs *= tensor_.cuts[each].parts;
        }
        map(joined, joined.num_elements() / num_slabs);
        from_ = before;
        from_.offset[axis] = num_chunks;
        add(axis + 1, rest);
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
    Slab from_;  // the selection in `elements/<type>`, for the axes that are cut so far
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
    OutputFile out(path, FileKind::Manifest, [&](h5::File& file) {
        describe(file, FileKind::Manifest, manifest.description);
        manifest.assets = place_assets(file, assets);
        create_views(file, manifest.plan);
        return to_json(manifest);
    });
    write_assets(out, manifest.assets, assets);
    std::vector<ByteRange> checked;
    for (const StoredAsset& asset : manifest.assets) checked.push_back({asset.at, asset.num_bytes});
    out.finish(to_json(manifest), std::move(checked));
}

}  // namespace argosy::checkpoint
