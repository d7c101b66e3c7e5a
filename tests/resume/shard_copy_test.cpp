// Who writes what of a tensor that several ranks hold, and the copy that is written.
#include "resume/shard_copy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ops/tensor_thread.h"

namespace argosy::resume {
namespace {

using layout::Axis;
using layout::MeshShape;

/// A parameter that `parts` ranks of the tensor axis split along `dim`, and all ranks of the shard axis.
layout::ParamSpec parameter(const MeshShape& mesh, const std::vector<int64_t>& shape, int dim, int parts) {
    layout::ParamSpec spec{.name = "w", .shape = shape};
    if (parts > 1) spec.splits.push_back({Axis::Tensor, dim, parts});
    const int num_shards = mesh.degree(layout::kShardAxes);
    if (num_shards > 1) spec.splits.push_back({layout::kShardAxes, 0, num_shards});
    return spec;
}

HeldTensor held(const std::string& name, const layout::ParamSpec& spec, const MeshShape& mesh, int rank) {
    const checkpoint::TensorInfo info{name, h5::ElementType::F32, spec.shape};
    const layout::Slab slab = layout::slab_of(spec, mesh, mesh.coordinates(rank));
    const at::Tensor rows = at::arange(slab.num_elements(), at::kFloat).view(slab.size);
    return {.info = info, .slab = slab, .cuts = placed_tensor(info, spec, mesh).cuts, .rows = rows};
}

checkpoint::Plan plan_of(const MeshShape& mesh, const HeldTensor& tensor) {
    return {.grid = writer_grid(mesh), .tensors = {{tensor.info, tensor.cuts}}};
}

/// How many ranks write each element; every part must be rows of the box that its rank holds.
std::vector<int> writers_of_elements(const std::string& name, const layout::ParamSpec& spec,
                                     const MeshShape& mesh) {
    std::vector<int> writers(spec.shape[0] * spec.shape[1], 0);
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
        if (!layout::holds(spec, mesh, mesh.coordinates(rank))) continue;
        const HeldTensor tensor = held(name, spec, mesh, rank);
        const int writer = writer_of(mesh, mesh.coordinates(rank));
        for (const ShardPart& part : shard_parts({&tensor, 1}, plan_of(mesh, tensor), writer)) {
            const layout::Slab& slab = part.piece.slab;
            EXPECT_EQ(part.piece.tensor, tensor.info);
            const int64_t first = slab.offset[0] - tensor.slab.offset[0];
            EXPECT_TRUE(part.rows.equal(tensor.rows.narrow(0, first, slab.size[0])));
            for (int64_t row = slab.offset[0]; row < slab.offset[0] + slab.size[0]; ++row)
                for (int64_t column = slab.offset[1]; column < slab.offset[1] + slab.size[1]; ++column)
                    ++writers[row * spec.shape[1] + column];
        }
    }
    return writers;
}

TEST(SavePlan, CoversEachElementOnceOnAnyMesh) {
    const c10::InferenceMode guard;
    for (const MeshShape& mesh : std::initializer_list<MeshShape>{{},
                                                                  {{1, 1, 8, 1, 1}},
                                                                  {{1, 3, 2, 1, 1}},
                                                                  {{1, 1, 2, 2, 4}},
                                                                  {{2, 2, 2, 1, 2}},
                                                                  {{4, 1, 1, 1, 2}}}) {
        for (const std::vector<int64_t>& shape :
             {std::vector<int64_t>{1, 6}, {7, 12}, {96, 20000}, {97, 64}}) {
            for (const int dim : {0, 1}) {
                const int degree = mesh.degree(Axis::Tensor);
                for (const int parts : {1, degree / 2, degree}) {
                    if (parts < 1) continue;
                    layout::ParamSpec spec = parameter(mesh, shape, dim, parts);
                    spec.stages = {0, mesh.degree(Axis::Pipeline) - 1};  // tied
                    EXPECT_EQ(writers_of_elements("model/w", spec, mesh),
                              std::vector<int>(shape[0] * shape[1], 1))
                        << mesh.name() << ": " << shape[0] << " x " << shape[1] << ", dim " << dim << " in "
                        << parts;
                }
            }
        }
    }
}

TEST(SavePlan, LargeBoxesAreCutAndSmallOnesSpread) {
    const c10::InferenceMode guard;
    constexpr int kRanks = 4;
    const MeshShape mesh{{1, kRanks, 1, 1, 1}};
    const auto num_rows_of = [&](const std::string& name, int rank, int64_t num_rows) {
        const HeldTensor tensor = held(name, parameter(mesh, {num_rows, 64}, 0, 1), mesh, rank);
        const auto parts = shard_parts({&tensor, 1}, plan_of(mesh, tensor), rank);
        return parts.empty() ? 0 : parts.front().piece.slab.size[0];
    };
    constexpr int64_t kEnough = kRanks * kMinPartBytes / (64 * 4);  // rows: each rank gets the least part
    for (int rank = 0; rank < kRanks; ++rank)
        EXPECT_EQ(num_rows_of("model/w", rank, kEnough), kEnough / kRanks);
    for (const int64_t num_rows : {kEnough - kRanks, kEnough + 1}) {  // too few, and not in equal parts
        std::vector<int> whole(kRanks, 0);
        for (int number = 0; number < 100; ++number) {
            const std::string name = "model/layers." + std::to_string(number);
            for (int rank = 0; rank < kRanks; ++rank) {
                const int64_t rows = num_rows_of(name, rank, num_rows);
                EXPECT_TRUE(rows == 0 || rows == num_rows);
                whole[rank] += rows > 0;
            }
        }
        for (const int count : whole) EXPECT_GT(count, 10) << "of 100";
    }
}

/// The parts of a rank that is alone.
std::vector<ShardPart> parts_of(const std::vector<HeldTensor>& tensors,
                                h5::ElementType type = h5::ElementType::F32) {
    checkpoint::Plan plan{.grid = {1, 1, 1, 1}, .tensors = {}};
    for (const HeldTensor& tensor : tensors) plan.tensors.push_back({tensor.info, tensor.cuts});
    for (checkpoint::PlacedTensor& tensor : plan.tensors) tensor.info.type = type;
    return shard_parts(tensors, plan, 0);
}

HeldTensor alone(const std::string& name, const std::vector<int64_t>& shape) {
    return held(name, parameter({}, shape, 0, 1), {}, 0);
}

TEST(ShardCopy, IsWhatTheTensorsHeldThen) {
    const c10::InferenceMode guard;
    const std::vector<HeldTensor> tensors = {alone("a", {3, 5}), alone("b", {0, 5}), alone("c", {1, 1})};
    const auto parts = parts_of(tensors);
    ASSERT_EQ(parts.size(), 2U);
    ShardCopy copy;
    const auto bytes = copy.copy(parts);
    std::vector<float> before(15);
    ASSERT_EQ(bytes[0].size(), 60U);
    tensors[0].rows.fill_(-1);
    std::memcpy(before.data(), bytes[0].data(), 60);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(before[i], i);
    EXPECT_EQ(bytes[1].size(), 4U);
    const auto* first = bytes[0].data();
    EXPECT_EQ(copy.copy(parts)[0].data(), first) << "the same memory again";
}

TEST(ShardCopy, ConvertsToTheTypeAsked) {
    const c10::InferenceMode guard;
    const HeldTensor tensor = alone("a", {2, 300});
    const auto parts = parts_of({tensor}, h5::ElementType::BF16);
    EXPECT_EQ(parts[0].piece.tensor.type, h5::ElementType::BF16);
    ShardCopy copy;
    const auto bytes = copy.copy(parts)[0];
    ASSERT_EQ(bytes.size(), 1200U);
    const at::Tensor expected = tensor.rows.to(at::kBFloat16);
    EXPECT_EQ(std::memcmp(bytes.data(), expected.const_data_ptr(), 1200), 0);
}

}  // namespace
}  // namespace argosy::resume
