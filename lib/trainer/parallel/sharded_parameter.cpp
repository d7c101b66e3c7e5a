#include "parallel/sharded_parameter.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "layout/param_spec.h"
#include "ops/numerics.h"

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

/// The slab with which a layer computes: after the tensor parallel cut, before the cut over the shard axes.
layout::Slab unsharded_slab(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                            const layout::Coordinates& coordinates) {
    const auto is_other = [&](const layout::Cut& cut) { return cut.axes != spec.shards; };
    const auto num_cuts = static_cast<int>(std::ranges::count_if(spec.cuts, is_other));
    return layout::slab_of(spec, mesh, coordinates, num_cuts);
}

/// Whether the gradient is summed over ranks after it was summed over microbatches and shards.
bool is_partial(const layout::ParamSpec& spec) {
    return !spec.gradient.axes.empty() || spec.pipeline_ranks.size() > 1;
}

}  // namespace

std::vector<int64_t> unsharded_shape(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                                     const layout::Coordinates& coordinates) {
    return unsharded_slab(spec, mesh, coordinates).size;
}

std::vector<int64_t> shard_shape(const layout::ParamSpec& spec, const layout::MeshShape& mesh,
                                 const layout::Coordinates& coordinates) {
    std::vector<int64_t> shape = unsharded_shape(spec, mesh, coordinates);
    shape[0] = layout::chunk(shape[0], mesh.degree(spec.shards), 0).size;
    return shape;
}

ParameterMemory ParameterMemory::allocate(const std::vector<int64_t>& shape, const Precision& precision,
                                          comm::Communicator& shards, ModelUse use) {
    const at::TensorOptions here(shards.device());
    const auto zeros = [&](comm::Collectives sent_by, at::ScalarType type) {
        return shards.make_tensor(sent_by, shape, here.dtype(type)).zero_();
    };
    ParameterMemory memory;
    memory.compute = zeros(comm::Collectives::Others, precision.compute);
    memory.master = precision.compute == precision.master ? memory.compute
                                                          : at::zeros(shape, here.dtype(precision.master));
    if (ops::is_float8(precision.compute)) memory.scale = at::zeros({1, 1}, here.dtype(at::kFloat));
    if (use == ModelUse::Training) {
        memory.gradient = zeros(comm::Collectives::Reductions, precision.gradient());
    }
    return memory;
}

ParameterMemory ParameterMemory::rows(int64_t begin, int64_t count) const {
    ParameterMemory part;
    part.master = master.narrow(0, begin, count);
    part.compute = compute.is_same(master) ? part.master : compute.narrow(0, begin, count);
    part.scale = scale;
    if (gradient.defined()) part.gradient = gradient.narrow(0, begin, count);
    return part;
}

ShardedParameter::ShardedParameter(const layout::ParamSpec& spec, const comm::Mesh& mesh,
                                   const ParameterMemory& memory, uint64_t seed,
                                   const ops::FirstRounding* first_rounding)
    : spec_(spec),
      seed_(seed),
      slab_(layout::slab_of(spec, mesh.shape(), mesh.coordinates())),
      owned_(layout::owns(spec, mesh.shape(), mesh.coordinates())),
      local_shape_(unsharded_shape(spec, mesh.shape(), mesh.coordinates())),
      master_(memory.master),
      compute_(memory.compute),
      scale_(memory.scale),
      gradient_{memory.gradient} {
    if (!memory.gradient.defined()) return;
    if (!master_.is_meta()) own_rows(master_).copy_(initial_tensor(spec, slab_, seed));
    refresh_compute();
    if (memory.gradient.scalar_type() != at::kBFloat16) return;
    ARGOSY_CHECK(first_rounding != nullptr, "{} has a gradient in bf16 without random bits", spec.name);
    const auto rounding = [&](ops::Rounded what, bool partial, const layout::Slab& slab) {
        const auto part = partial ? static_cast<uint32_t>(1 + mesh.world().rank()) : 0;
        return ops::SumRounding{ops::rounding_key(seed, spec.name, what, part),
                                layout::rows_of(spec.shape, slab), first_rounding};
    };
    gradient_.rounding = rounding(ops::Rounded::Gradient, is_partial(spec), slab_);
    unreduced_rounding_ = rounding(ops::Rounded::UnreducedGradient, /*partial=*/true,
                                   unsharded_slab(spec, mesh.shape(), mesh.coordinates()));
}

at::Tensor ShardedParameter::wide_gradient() const { return ops::widened(gradient_.sum); }

void ShardedParameter::set_gradient(const at::Tensor& sum, ops::Rounded what) {
    if (sum.is_same(gradient_.sum)) return;
    ops::SumRounding rounding = *gradient_.rounding;
    rounding.key = ops::rounding_key(seed_, spec_.name, what);
    rounding.microbatch = rounding.count = 0;  // the only one of its kind in a step
    ops::add_rounded(gradient_.sum, sum, /*accumulate=*/false, rounding);
}

void ShardedParameter::refresh_compute() {
    if (!compute_.is_same(master_) && !scale_.defined()) compute_.copy_(master_);
}

void ShardedParameter::cast_to_float8(const ops::Cast& cast, const at::Tensor& largest) {
    ARGOSY_CHECK(compute_.scalar_type() == cast.type, "{} is kept in another type than its cast", spec_.name);
    ops::cast_into({compute_, scale_, master_.scalar_type()}, master_, cast, largest);
}

}  // namespace argosy::parallel
