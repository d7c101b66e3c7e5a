#include "parallel/sharded_parameter.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "layout/initial.h"

namespace argosy::parallel {
namespace {

constexpr int64_t kLeastElements = 1 << 14;  // that are worth a thread: about 100 us

at::Tensor initial_tensor(const layout::ParamSpec& spec, const layout::Slab& slab, uint64_t seed) {
    at::Tensor values = at::empty(slab.size, at::kFloat);
    const int64_t rows = slab.size[0], row_elements = rows == 0 ? 0 : slab.num_elements() / rows;
    auto* out = values.mutable_data_ptr<float>();
    at::parallel_for(0, rows, 1 + kLeastElements / (row_elements + 1), [&](int64_t begin, int64_t end) {
        layout::Slab part = slab;
        part.offset[0] += begin;
        part.size[0] = end - begin;
        layout::initial_values(spec, part, seed, out + begin * row_elements);
    });
    return values;
}

}  // namespace

std::vector<int64_t> unsharded_shape(const layout::ParamSpec& spec, const mesh::MeshShape& mesh,
                                     const mesh::Coordinates& coordinates) {
    int num_splits = 0;
    for (const layout::Split& split : spec.splits) num_splits += split.axes != mesh::kShardAxes;
    return layout::slab_of(spec, mesh, coordinates, num_splits).size;
}

ShardedParameter::ShardedParameter(const layout::ParamSpec& spec, const mesh::Mesh& mesh,
                                   const Precision& precision, uint64_t seed)
    : spec_(spec),
      slab_(layout::slab_of(spec, mesh.shape(), mesh.coordinates())),
      owned_(layout::owns(spec, mesh.shape(), mesh.coordinates())),
      local_shape_(unsharded_shape(spec, mesh.shape(), mesh.coordinates())) {
    std::vector<int64_t> shape = local_shape_;
    shape[0] = layout::chunk(local_shape_[0], mesh.degree(mesh::kShardAxes), 0).size;
    const at::TensorOptions here(mesh.device());
    master_ = at::zeros(shape, here.dtype(precision.master));
    own_rows(master_).copy_(initial_tensor(spec, slab_, seed));
    compute_ =
        precision.compute == precision.master ? master_ : at::empty(shape, here.dtype(precision.compute));
    gradient_.sum = at::zeros(shape, here.dtype(precision.reduce));
    refresh_compute();
}

int64_t ShardedParameter::row_elements() const {
    int64_t count = 1;
    for (size_t dim = 1; dim < local_shape_.size(); ++dim) count *= local_shape_[dim];
    return count;
}

void ShardedParameter::refresh_compute() {
    if (!compute_.is_same(master_)) compute_.copy_(master_);
}

}  // namespace argosy::parallel
