// Who writes what of a tensor that several ranks hold, and the copy that is written.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ops/ops_context.h"
#include "resume/save_plan.h"

namespace argosy::resume {
namespace {

using layout::Axis;
using layout::MeshShape;

/// A parameter that `parts` ranks of the tensor axis cut along `dim`, and all ranks of the shard axis.
layout::ParamSpec parameter(const MeshShape& mesh, const std::vector<int64_t>& shape, int dim, int parts) {
    layout::ParamSpec spec{.name = "w", .shape = shape};
    if (parts > 1) spec.cuts.push_back({Axis::Tensor, dim, parts});
    const int num_shards = mesh.degree(parallel::kDenseShards);
    if (num_shards > 1) spec.cuts.push_back({parallel::kDenseShards, 0, num_shards});
    return spec;
}

HeldSlab held(const std::string& name, const layout::ParamSpec& spec, const MeshShape& mesh, int rank) {
    const checkpoint::TensorInfo tensor{name, ElementType::Float32, spec.shape};
    const layout::Slab slab = layout::slab_of(spec, mesh, mesh.coordinates(rank));
    return {{tensor, slab}, at::arange(slab.num_elements(), at::kFloat).view(slab.size)};
}

/// The slabs that the rank writes.
std::vector<HeldSlab> written(const HeldSlab& own, const layout::ParamSpec& spec, const MeshShape& mesh,
                              int rank) {
    const checkpoint::SavePlan plan = save_plan({cut_tensor(own.tensor, spec, mesh)}, mesh);
    return written_slabs({&own, 1}, plan, writer_of(plan, mesh, mesh.coordinates(rank)));
}

/// How many ranks write each element; every slab must be rows of the slab that its rank holds.
std::vector<int> writers_of_elements(const std::string& name, const layout::ParamSpec& spec,
                                     const MeshShape& mesh) {
    std::vector<int> writers(spec.shape[0] * spec.shape[1], 0);
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
        if (!layout::holds(spec, mesh.coordinates(rank))) continue;
        const HeldSlab own = held(name, spec, mesh, rank);
        for (const HeldSlab& each : written(own, spec, mesh, rank)) {
            const layout::Slab& slab = each.slab;
            EXPECT_EQ(each.tensor, own.tensor);
            const int64_t first = slab.offset[0] - own.slab.offset[0];
            EXPECT_TRUE(each.elements.equal(own.elements.narrow(0, first, slab.size[0])));
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
                    const int last = mesh.degree(Axis::Pipeline) - 1;
                    if (last > 0) spec.pipeline_ranks = {0, last};  // tied
                    EXPECT_EQ(writers_of_elements("model/w", spec, mesh),
                              std::vector<int>(shape[0] * shape[1], 1))
                        << mesh.name() << ": " << shape[0] << " x " << shape[1] << ", dim " << dim << " in "
                        << parts;
                }
            }
        }
    }
}

TEST(SavePlan, LargeSlabsAreCutAndSmallOnesSpread) {
    const c10::InferenceMode guard;
    constexpr int kRanks = 4;
    const MeshShape mesh{{1, kRanks, 1, 1, 1}};
    const auto num_rows_of = [&](const std::string& name, int rank, int64_t num_rows) {
        const layout::ParamSpec spec = parameter(mesh, {num_rows, 64}, 0, 1);
        const auto slabs = written(held(name, spec, mesh, rank), spec, mesh, rank);
        return slabs.empty() ? 0 : slabs.front().slab.size[0];
    };
    constexpr int64_t kEnough = kRanks * kMinSlabBytes / (64 * 4);  // rows: each rank gets the smallest slab
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

/// The slabs that a rank writes that is alone.
std::vector<HeldSlab> written_alone(const std::vector<HeldSlab>& held,
                                    ElementType type = ElementType::Float32) {
    checkpoint::SavePlan plan{.grid = {1}, .tensors = {}};
    for (const HeldSlab& slab : held)
        plan.tensors.push_back({{slab.tensor.name, type, slab.tensor.shape}, {checkpoint::GridCut{}}});
    return written_slabs(held, plan, 0);
}

HeldSlab alone(const std::string& name, const std::vector<int64_t>& shape) {
    return held(name, parameter({}, shape, 0, 1), {}, 0);
}

TEST(ShardCopy, IsWhatTheTensorsHeldThen) {
    const c10::InferenceMode guard;
    const std::vector<HeldSlab> held = {alone("a", {3, 5}), alone("b", {0, 5}), alone("c", {1, 1})};
    const auto slabs = written_alone(held);
    ASSERT_EQ(slabs.size(), 2U);
    ShardCopy copy;
    const auto bytes = copy.copy(slabs);
    std::vector<float> before(15);
    ASSERT_EQ(bytes[0].size(), 60U);
    held[0].elements.fill_(-1);
    std::memcpy(before.data(), bytes[0].data(), 60);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(before[i], i);
    EXPECT_EQ(bytes[1].size(), 4U);
    const auto* first = bytes[0].data();
    EXPECT_EQ(copy.copy(slabs)[0].data(), first) << "the same memory again";
}

TEST(ShardCopy, ConvertsToTheTypeAsked) {
    const c10::InferenceMode guard;
    const HeldSlab held = alone("a", {2, 300});
    const auto slabs = written_alone({held}, ElementType::BFloat16);
    EXPECT_EQ(slabs[0].tensor.type, ElementType::BFloat16);
    ShardCopy copy;
    const auto bytes = copy.copy(slabs)[0];
    ASSERT_EQ(bytes.size(), 1200U);
    const at::Tensor expected = held.elements.to(at::kBFloat16);
    EXPECT_EQ(std::memcmp(bytes.data(), expected.const_data_ptr(), 1200), 0);
}

}  // namespace
}  // namespace argosy::resume
