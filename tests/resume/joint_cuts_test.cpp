// Saves of parameters that are cut over several axes of the mesh together, as experts are, beside those of
// dense layers: any mesh reads what any other saved. All ranks of a mesh are of this process.
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/step_folder.h"
#include "checkpoint/table.h"
#include "checkpoint/tensor_file.h"
#include "expect_error.h"
#include "h5/file.h"
#include "ops/ops_context.h"
#include "parallel/placement.h"
#include "resume/save_plan.h"
#include "scratch_folder.h"

namespace argosy::resume {
namespace {

using checkpoint::Checkpoint;
using checkpoint::TensorInfo;
using layout::Axis;
using layout::AxisSet;
using layout::MeshShape;

constexpr AxisSet kContextTensor = {Axis::Context, Axis::Tensor};
constexpr AxisSet kInnerAndNearer = {layout::kInnerShards, Axis::Context, Axis::Tensor};
constexpr AxisSet kAll = {Axis::Shard, Axis::Context, Axis::Tensor};

/// A parameter whose dim `dim` is cut over the tensor axis, if it is one, and whose rows are then cut over
/// each of `sets`. Axes of one rank cut nothing.
layout::ParamSpec parameter(const std::string& name, const std::vector<int64_t>& shape, const MeshShape& mesh,
                            int tensor_dim, const std::vector<AxisSet>& sets) {
    layout::ParamSpec spec{.name = name, .shape = shape};
    const auto add = [&](AxisSet axes, int dim) {
        if (mesh.degree(axes) > 1) spec.cuts.push_back({axes, dim, mesh.degree(axes)});
    };
    if (tensor_dim >= 0) add(Axis::Tensor, tensor_dim);
    for (const AxisSet axes : sets) add(axes, 0);
    spec.pipeline_ranks = {mesh.degree(Axis::Pipeline) - 1};
    return spec;
}

std::vector<layout::ParamSpec> dense_parameters(const MeshShape& mesh) {
    using parallel::kDenseShards;
    std::vector<layout::ParamSpec> dense = {parameter("wq", {64, 5}, mesh, 0, {kDenseShards}),
                                            parameter("wo", {10, 64}, mesh, 1, {kDenseShards}),
                                            parameter("large", {128, 1024}, mesh, 0, {kDenseShards}),
                                            parameter("norm", {64}, mesh, -1, {kDenseShards})};
    if (mesh.degree(Axis::Pipeline) > 1) dense[3].pipeline_ranks = {0, 1};
    return dense;
}

/// Experts without and with expert parallelism over {tp}, {cp, tp} and {inner, cp, tp}: in equal parts, with
/// short and empty parts, and large enough for replicas to share them.
std::vector<layout::ParamSpec> experts(const MeshShape& mesh) {
    std::vector<layout::ParamSpec> all;
    for (const auto& [rows, columns] : {std::pair(48, 3), {37, 2}, {5, 4}, {128, 1024}}) {
        const std::string name = "experts" + std::to_string(rows) + ".";
        all.push_back(parameter(name + "1", {rows, columns}, mesh, -1, {kAll}));
        all.push_back(parameter(name + "tp", {rows, columns}, mesh, 0, {parallel::kDenseShards}));
        all.push_back(parameter(name + "cp_tp", {rows, columns}, mesh, -1, {kContextTensor, Axis::Shard}));
        all.push_back(
            parameter(name + "inner", {rows, columns}, mesh, -1, {kInnerAndNearer, layout::kOuterShards}));
        all.push_back(parameter(name + "some", {rows, columns}, mesh, -1, {kContextTensor}));
    }
    return all;
}

std::vector<layout::ParamSpec> parameters(const MeshShape& mesh) {
    std::vector<layout::ParamSpec> all = dense_parameters(mesh);
    for (layout::ParamSpec& spec : experts(mesh)) all.push_back(std::move(spec));
    return all;
}

TensorInfo tensor_of(const layout::ParamSpec& spec) {
    return {"model/" + spec.name, ElementType::Float32, spec.shape};
}

/// The elements of a slab: the number of each in the tensor, plus one.
at::Tensor elements_of(const layout::ParamSpec& spec, const layout::Slab& slab) {
    at::Tensor elements =
        at::arange(1, layout::whole(spec.shape).num_elements() + 1, at::kFloat).view(spec.shape);
    for (size_t dim = 0; dim < spec.shape.size(); ++dim)
        elements = elements.narrow(static_cast<int64_t>(dim), slab.offset[dim], slab.size[dim]);
    return elements.contiguous();
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

checkpoint::SavePlan plan_of(const std::vector<layout::ParamSpec>& specs, const MeshShape& mesh) {
    std::vector<checkpoint::CutTensor> tensors;
    for (const layout::ParamSpec& spec : specs) tensors.push_back(cut_tensor(tensor_of(spec), spec, mesh));
    return save_plan(std::move(tensors), mesh);
}

/// Saves the parameters as the ranks of the mesh do. Returns the step's folder.
std::filesystem::path save(const std::filesystem::path& folder, const std::vector<layout::ParamSpec>& specs,
                           const MeshShape& mesh) {
    const checkpoint::SavePlan plan = plan_of(specs, mesh);
    const auto partial = checkpoint::start_step(folder, 1, plan.num_writers());
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
        const layout::Coordinates coordinates = mesh.coordinates(rank);
        std::vector<HeldSlab> held;
        for (const layout::ParamSpec& spec : specs) {
            const layout::Slab slab = layout::slab_of(spec, mesh, coordinates);
            if (layout::holds(spec, coordinates))
                held.push_back({{tensor_of(spec), slab}, elements_of(spec, slab)});
        }
        const int writer = writer_of(plan, mesh, coordinates);
        auto file = checkpoint::TensorFile::shard(partial, {1, 2}, plan, writer);
        const std::vector<HeldSlab> written = written_slabs(held, plan, writer);
        for (size_t i = 0; i < written.size(); ++i)
            file.append(i, bytes_of(written[i].elements.contiguous()));
        file.finish();
    }
    checkpoint::commit_step(folder, {.step = 1, .model = "{}", .state = "{}"}, {1, 2}, plan, {});
    return checkpoint::step_path(folder, 1);
}

void expect_slab(const Checkpoint& checkpoint, const layout::ParamSpec& spec, const layout::Slab& slab) {
    const at::Tensor expected = elements_of(spec, slab), found = at::zeros_like(expected);
    checkpoint.read(tensor_of(spec), slab, bytes_of(found));
    EXPECT_TRUE(found.equal(expected)) << spec.name;
}

std::string format_of(const std::filesystem::path& file) {
    const std::string text = read_file(file);
    return text.substr(0, text.find('\n'));
}

/// The same tensors as HDF5 shows them through the manifest.
void expect_views(const std::filesystem::path& manifest, const std::vector<layout::ParamSpec>& specs) {
    const h5::File file = h5::File::open(manifest);
    for (const layout::ParamSpec& spec : specs) {
        const at::Tensor expected = elements_of(spec, layout::whole(spec.shape)),
                         found = at::zeros_like(expected);
        file.open_dataset(tensor_of(spec).name).read(bytes_of(found));
        EXPECT_TRUE(found.equal(expected)) << spec.name;
    }
}

const std::vector<MeshShape> kMeshes = {{{1, 1, 1, 1, 1}},
                                        {{1, 1, 4, 1, 1}},
                                        {{1, 1, 1, 2, 2}},
                                        {{1, 1, 2, 1, 2}},
                                        {{1, 2, 1, 1, 2}},
                                        {{1, 1, 2, 2, 2}},
                                        {{1, 2, 2, 1, 2}},
                                        {{2, 1, 2, 2, 1}},
                                        {{1, 1, 1, 2, 4}},
                                        {{1, 2, 1, 2, 2}},
                                        {.degrees = {1, 1, 4, 1, 2}, .inner_shards = 2},
                                        {.degrees = {1, 2, 4, 1, 1}, .inner_shards = 2},
                                        {.degrees = {1, 1, 8, 1, 1}, .inner_shards = 4}};

TEST(JointCuts, AnyMeshReadsWhatAnyOtherSaved) {
    const c10::InferenceMode guard;
    for (const MeshShape& mesh : kMeshes) {
        SCOPED_TRACE("saved by " + mesh.name());
        const ScratchFolder folder;
        const auto step = save(folder / "run", parameters(mesh), mesh);
        const Checkpoint checkpoint(step);
        EXPECT_EQ(checkpoint.faults(), std::vector<std::string>());
        expect_views(step / "checkpoint.h5", parameters(mesh));
        for (const MeshShape& other : kMeshes) {
            SCOPED_TRACE("read by " + other.name());
            for (const layout::ParamSpec& spec : parameters(other))
                for (int rank = 0; rank < other.num_ranks(); ++rank)
                    expect_slab(checkpoint, spec, layout::slab_of(spec, other, other.coordinates(rank)));
        }
    }
}

TEST(JointCuts, HaveAFormatOfTheirOwnWhereDenseOnesDoNotDo) {
    const c10::InferenceMode guard;
    const auto expect_format = [](const MeshShape& mesh, const std::vector<layout::ParamSpec>& specs,
                                  const std::string& format) {
        const ScratchFolder folder;
        const auto step = save(folder / "run", specs, mesh);
        EXPECT_EQ(format_of(step / "checkpoint.h5"), "argosy checkpoint " + format) << mesh.name();
        EXPECT_EQ(format_of(step / checkpoint::shard_name(0, mesh.num_ranks())), "argosy checkpoint 2.0");
    };
    for (const MeshShape& mesh : kMeshes) expect_format(mesh, dense_parameters(mesh), "2.0");
    const MeshShape mesh{{1, 1, 2, 2, 2}};
    for (const layout::ParamSpec& spec : experts(mesh))
        expect_format(mesh, {spec}, spec.name.ends_with(".tp") ? "2.0" : "3.0");
    // Axes of one rank make no difference: these are the cuts of dense layers.
    expect_format({{1, 1, 4, 1, 1}}, experts({{1, 1, 4, 1, 1}}), "2.0");
    expect_format({{1, 1, 1, 1, 4}}, experts({{1, 1, 1, 1, 4}}), "2.0");
}

// The texts are those of the program before it had format 3.0.
TEST(JointCuts, LeavePlansOfDenseModelsAsTheyWere) {
    const auto plan_text = [](const MeshShape& mesh) {
        std::vector<checkpoint::CutTensor> tensors;
        for (const auto& [name, shape, dim, parts] :
             std::initializer_list<std::tuple<std::string, std::vector<int64_t>, int, int>>{
                 {"wq", {4096, 256}, 0, mesh.degree(Axis::Tensor)},
                 {"wk", {64, 64}, 0, std::max(1, mesh.degree(Axis::Tensor) / 2)},
                 {"wo", {256, 64}, 1, mesh.degree(Axis::Tensor)},
                 {"norm", {64}, 0, 1}}) {
            layout::ParamSpec spec = parameter(name, shape, mesh, -1, {});
            spec.pipeline_ranks = {0};
            if (parts > 1) spec.cuts.push_back({Axis::Tensor, dim, parts});
            spec.cuts.push_back({parallel::kDenseShards, 0, mesh.degree(parallel::kDenseShards)});
            if (name == "wo" && mesh.degree(Axis::Pipeline) > 1) spec.pipeline_ranks = {0, 1};
            tensors.push_back(cut_tensor(tensor_of(spec), spec, mesh));
        }
        const checkpoint::SavePlan plan = save_plan(tensors, mesh);
        const layout::Coordinates some = mesh.coordinates(mesh.num_ranks() * 2 / 3);
        return std::pair(checkpoint::to_json(plan), writer_of(plan, mesh, some));
    };
    EXPECT_EQ(plan_text({{2, 2, 2, 2, 4}}), std::pair(std::string(
                                                          R"({"grid":[2,4,4,2],
"tensors":[
{"name":"model/wq","type":"f32","shape":[4096,256],"cuts":[[0,1,0],[0,4,0],[0,4,0],[0,2,0]]},
{"name":"model/wk","type":"f32","shape":[64,64],"cuts":[[0,1,0],[0,2,1],[0,4,0],[0,1,0]]},
{"name":"model/wo","type":"f32","shape":[256,64],"cuts":[[0,1,1],[1,4,0],[0,4,0],[0,1,0]]},
{"name":"model/norm","type":"f32","shape":[64],"cuts":[[0,1,0],[0,1,1],[0,4,0],[0,1,1]]}]})"),
                                                      52));
    EXPECT_EQ(plan_text({{1, 1, 4, 1, 1}}), std::pair(std::string(
                                                          R"({"grid":[1,1,4,1],
"tensors":[
{"name":"model/wq","type":"f32","shape":[4096,256],"cuts":[[0,1,0],[0,1,0],[0,4,0],[0,1,0]]},
{"name":"model/wk","type":"f32","shape":[64,64],"cuts":[[0,1,0],[0,1,0],[0,4,0],[0,1,0]]},
{"name":"model/wo","type":"f32","shape":[256,64],"cuts":[[0,1,0],[0,1,0],[0,4,0],[0,1,0]]},
{"name":"model/norm","type":"f32","shape":[64],"cuts":[[0,1,0],[0,1,0],[0,4,0],[0,1,0]]}]})"),
                                                      2));
}

TEST(JointCuts, DivideEachAxisOnce) {
    MeshShape mesh{{1, 2, 2, 2, 2}};
    const auto plan = [&](const std::vector<AxisSet>& sets) {
        return plan_of({parameter("w", {64, 2}, mesh, -1, sets)}, mesh);
    };
    EXPECT_EQ(checkpoint::to_json(plan({kContextTensor, Axis::Shard})),
              R"({"grid":[1,2,1,2,2,2],
"tensors":[
{"name":"model/w","type":"f32","shape":[64,2],"cuts":[[0,1,0,[0]],[0,4,0,[3,4]],[0,2,0,[1,2]],[0,1,0,[5]]]}]})");
    EXPECT_ERROR(plan({kContextTensor, parallel::kDenseShards}), RunError,
                 "w: 2 of its cuts are over cp, but a save has one at most");
    EXPECT_ERROR(plan({{Axis::Replicate, Axis::Shard}}), RunError,
                 "w: 1 of its cuts are over dp_replicate, but a save has none at most");
    mesh = {.degrees = {1, 1, 8, 1, 2}, .inner_shards = 4};
    EXPECT_EQ(checkpoint::to_json(plan({kInnerAndNearer, layout::kOuterShards})),
              R"({"grid":[1,2,4,1,2,1],
"tensors":[
{"name":"model/w","type":"f32","shape":[64,2],"cuts":[[0,1,0,[0]],[0,8,0,[2,3,4]],[0,2,0,[1]],[0,1,0,[5]]]}]})");
}

}  // namespace
}  // namespace argosy::resume
