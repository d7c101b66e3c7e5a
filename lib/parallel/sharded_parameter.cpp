#include "parallel/sharded_parameter.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "layout/initial.h"

namespace argosy::parallel {
namespace {

constexpr int64_t kMinElements = 1 << 14;  // minimum number of elements for one thread: about 100 us

at::Tensor initial_tensor(const layout::ParamSpec& spec, const layout::Slab& slab, uint64_t seed) {
    at::Tensor values = at::empty(slab.size, at::kFloat);
    const int64_t rows = slab.size[0], row_elements = rows == 0 ? 0 : slab.num_elements() / rows;
    auto* out = values.mutable_data_ptr<float>();
    at::parallel_for(0, rows, 1 + kMinElements / (row_elements + 1), [&](int64_t begin, int64_t end) {
        layout::Slab part = slab;
        part.offset[0] += begin;
        part.size[0] = end - begin;
        layout::initial_values(spec, part, seed, out + begin * row_elements);
    });
    return values;
}

}  // namespace

std::vector<int64_t> unsharded_shape(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                                     const layout::Coordinates& coordinates) {
    int num_cuts = 0;
    for (const layout::Cut& cut : spec.cuts) num_cuts += cut.axes != layout::kShardAxes;
    return layout::slab_of(spec, mesh, coordinates, num_cuts).size;
}

std::vector<int64_t> shard_shape(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                                 const layout::Coordinates& coordinates) {
    std::vector<int64_t> shape = unsharded_shape(spec, mesh, coordinates);
    shape[0] = layout::chunk(shape[0], mesh.degree(layout::kShardAxes), 0).size;
    return shape;
}

ParameterMemory ParameterMemory::allocate(const std::vector<int64_t>& shape, const Precision& precision,
                                          c10::Device device) {
    const at::TensorOptions here(device);
    ParameterMemory memory;
    memory.master = at::zeros(shape, here.dtype(precision.master));
    memory.compute = precision.compute == precision.master ? memory.master
                                                           : at::zeros(shape, here.dtype(precision.compute));
    memory.gradient = at::zeros(shape, here.dtype(precision.reduce));
    return memory;
}

ParameterMemory ParameterMemory::rows(int64_t begin, int64_t count) const {
    ParameterMemory part;
    part.master = master.narrow(0, begin, count);
    part.compute = compute.is_same(master) ? part.master : compute.narrow(0, begin, count);
    part.gradient = gradient.narrow(0, begin, count);
    return part;
}

ShardedParameter::ShardedParameter(const layout::ParamSpec& spec, const comm::Mesh& mesh,
                                   const ParameterMemory& memory, uint64_t seed)
    : spec_(spec),
      slab_(layout::slab_of(spec, mesh.shape(), mesh.coordinates())),
      owned_(layout::owns(spec, mesh.shape(), mesh.coordinates())),
      local_shape_(unsharded_shape(spec, mesh.shape(), mesh.coordinates())),
      master_(memory.master),
      compute_(memory.compute),
      gradient_{memory.gradient} {
    own_rows(master_).copy_(initial_tensor(spec, slab_, seed));
    refresh_compute();
}

void ShardedParameter::refresh_compute() {
    if (!compute_.is_same(master_)) compute_.copy_(master_);
}

}  // namespace argosy::parallel
