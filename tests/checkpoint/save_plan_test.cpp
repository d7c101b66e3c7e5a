// The slabs that follow from a plan, and the views that a manifest has of them.
#include "checkpoint/save_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "h5/file.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr Cuts kBoth[] = {Cuts::Plain, Cuts::Joint};

TEST(SavePlan, CutsAlongTheAxesInTheirOrder) {
    // Two pipeline ranks, four tensor ranks of which pairs hold the same half of the columns, three shards.
    const std::vector<int> grid = {2, 4, 3};
    const CutTensor tensor{{"w", ElementType::Float32, {7, 10}},
                           {{.first = 1}, {.dim = 1, .parts = 2, .first = 1}, {.parts = 3}}};
    EXPECT_EQ(slab_of(grid, tensor, 12 + 3 * 1 + 0), (layout::Slab{{0, 0}, {3, 5}}));
    EXPECT_EQ(slab_of(grid, tensor, 12 + 3 * 1 + 2), (layout::Slab{{6, 0}, {1, 5}}));
    EXPECT_EQ(slab_of(grid, tensor, 12 + 3 * 3 + 1), (layout::Slab{{3, 5}, {3, 5}}));
    EXPECT_EQ(slab_of(grid, tensor, 12 + 3 * 2 + 1), std::nullopt);  // its neighbour writes
    EXPECT_EQ(slab_of(grid, tensor, 0 + 3 * 1 + 0), std::nullopt);   // another pipeline rank
    const CutTensor two_rows{{"w", ElementType::Float32, {2, 1}}, {{.first = 0}, {}, {.parts = 3}}};
    EXPECT_EQ(slab_of(grid, two_rows, 2), std::nullopt);  // more parts than rows
}

TEST(SavePlan, CutsAlongAxesTogether) {
    // Rows over the axes 0 and 2 together, then the columns over axis 1, of which the second writer writes.
    const std::vector<int> grid = {2, 4, 3};
    const CutTensor tensor{{"w", ElementType::Float32, {12, 10}},
                           {{.parts = 6, .axes = {0, 2}}, {.dim = 1, .parts = 2, .first = 1, .axes = {1}}}};
    EXPECT_EQ(slab_of(grid, tensor, 3 * 1 + 0), (layout::Slab{{0, 0}, {2, 5}}));
    EXPECT_EQ(slab_of(grid, tensor, 3 * 3 + 2), (layout::Slab{{4, 5}, {2, 5}}));
    EXPECT_EQ(slab_of(grid, tensor, 12 + 3 * 1 + 0), (layout::Slab{{6, 0}, {2, 5}}));
    EXPECT_EQ(slab_of(grid, tensor, 12 + 3 * 3 + 1), (layout::Slab{{8, 5}, {2, 5}}));
    EXPECT_EQ(slab_of(grid, tensor, 12 + 3 * 2 + 1), std::nullopt);
    const CutTensor halves{{"w", ElementType::Float32, {12}}, {{.parts = 2, .first = 5, .axes = {0, 1, 2}}}};
    EXPECT_EQ(slab_of(grid, halves, 5), (layout::Slab{{0}, {6}}));
    EXPECT_EQ(slab_of(grid, halves, 17), (layout::Slab{{6}, {6}}));
    EXPECT_EQ(slab_of(grid, halves, 11), std::nullopt);
}

TEST(SavePlan, GivesEachElementToOneWriter) {
    Random random(3);
    const Sample sample = random_sample(random, 6);
    for (int round = 0; round < 200; ++round) {
        const int num_writers = 1 + static_cast<int>(below(random, 24));
        const SavePlan plan = random_plan(random, sample.tensors, num_writers, kBoth[round % 2]);
        for (const CutTensor& tensor : plan.tensors) {
            const layout::Slab wanted = random_slab(random, tensor.info);
            std::map<int, layout::Slab> visited, expected;
            for_each_slab(plan.grid, tensor, wanted, [&](int writer, const layout::Slab& slab) {
                EXPECT_TRUE(visited.emplace(writer, slab).second);
            });
            int64_t num_elements = 0;
            for (int writer = 0; writer < num_writers; ++writer) {
                const auto slab = slab_of(plan.grid, tensor, writer);
                if (!slab) continue;
                num_elements += slab->num_elements();
                if (wanted.num_elements() > 0 && intersection(*slab, wanted)) expected.emplace(writer, *slab);
            }
            EXPECT_EQ(visited, expected);
            EXPECT_EQ(num_elements, tensor.info.num_elements());
        }
    }
}

TEST(SavePlan, TheSaveIsThatOfOnePlan) {
    const SavePlan plan{.grid = {4}, .tensors = {{{"w", ElementType::Float32, {8}}, {{.parts = 4}}}}};
    SavePlan other = plan;
    EXPECT_EQ(set_of({1, 2}, plan), set_of({1, 2}, other));
    EXPECT_NE(set_of({1, 2}, plan), set_of({1, 3}, plan));
    other.tensors[0].cuts[0] = {.parts = 2, .first = 1};
    EXPECT_NE(set_of({1, 2}, plan), set_of({1, 2}, other));
    other = plan;
    other.tensors[0].cuts[0].axes = {0};
    EXPECT_NE(set_of({1, 2}, plan), set_of({1, 2}, other));
    other = plan;
    other.grid = {2, 2};
    EXPECT_NE(set_of({1, 2}, plan), set_of({1, 2}, other));
}

TEST(SavePlan, LaysTheSlabsOfATensorOutAlike) {
    // A norm is on one of two tensor ranks, after the matrices of both; its gap on the other one is not
    // there.
    const SavePlan plan{
        .grid = {2, 2},
        .tensors = {{{"norm", ElementType::Float32, {8}}, {{.first = 1}, {.parts = 2}}},
                    {{"a", ElementType::Float32, {8, 3}}, {{.dim = 0, .parts = 2}, {.dim = 0, .parts = 2}}},
                    {{"b", ElementType::Float32, {6, 2}}, {{.dim = 1, .parts = 2}, {.dim = 0, .parts = 2}}},
                    {{"other type", ElementType::BFloat16, {2}}, {{.parts = 2}, {.first = 0}}}}};
    const ElementLayout elements = element_layout(plan);
    EXPECT_EQ(elements.begin, (std::vector<int64_t>{9, 0, 6, 0}));
    EXPECT_EQ(elements.num_elements.at(ElementType::Float32), (std::vector<int64_t>{9, 9, 13, 13}));
    EXPECT_EQ(elements.num_elements.at(ElementType::BFloat16), (std::vector<int64_t>{1, 0, 1, 0}));
}

TEST(SavePlan, GivesEachSlabElementsOfItsOwn) {
    Random random(4);
    const Sample sample = random_sample(random, 40);
    for (int round = 0; round < 200; ++round) {
        const SavePlan plan = random_plan(random, sample.tensors, 12, kBoth[round % 2]);
        const ElementLayout elements = element_layout(plan);
        for (int writer = 0; writer < plan.num_writers(); ++writer) {
            std::map<ElementType, std::map<int64_t, int64_t>> ranges;  // begin -> end
            for (size_t i = 0; i < plan.tensors.size(); ++i) {
                const auto slab = slab_of(plan.grid, plan.tensors[i], writer);
                if (!slab) continue;
                const int64_t begin = elements.begin[i], end = begin + slab->num_elements();
                EXPECT_TRUE(ranges[plan.tensors[i].info.type].emplace(begin, end).second);
            }
            for (const auto& [type, of_type] : ranges) {
                int64_t last = 0;
                for (const auto& [begin, end] : of_type) {
                    ASSERT_GE(begin, last) << "round " << round << ", writer " << writer;
                    last = end;
                }
                ASSERT_LE(last, elements.num_elements.at(type)[writer]);
            }
        }
    }
}

/// The tensors as HDF5 shows them through the manifest.
void expect_views(const fs::path& step, const Sample& sample) {
    const h5::File file = h5::File::open(step / "checkpoint.h5");
    for (const TensorInfo& tensor : sample.tensors) {
        std::vector<std::byte> bytes(tensor.num_bytes());
        const h5::Dataset dataset = file.open_dataset(tensor.name);
        EXPECT_EQ(dataset.shape(), tensor.shape);
        if (!bytes.empty()) dataset.read(bytes);
        EXPECT_EQ(bytes, sample.bytes.at(tensor.name)) << tensor.name;
    }
}

TEST(Views, ShowWholeTensorsOfAnyPlan) {
    Random random(8);
    for (const int num_writers : {1, 2, 4, 6, 8, 12, 12, 12, 16, 16}) {
        for (const Cuts cuts : kBoth) {
            const ScratchFolder folder;
            const Sample sample = random_sample(random, 12);
            expect_views(write_step(random, folder / "", sample, num_writers, 7, cuts), sample);
        }
    }
}

// As a run cuts its tensors: rows over tensor ranks, shards and replicas, in equal parts and with a rest.
TEST(Views, JoinNeighboursOnTheGrid) {
    Random random(9);
    for (const int64_t rows : {1, 5, 24, 25, 31, 48}) {
        const ScratchFolder folder;
        Sample sample;
        for (const char* name : {"rows", "columns", "shards", "replicas"})
            sample.add(random, {name, ElementType::Float32, {rows, 6}});
        const GridCut all{};
        const SavePlan plan{
            .grid = {2, 3, 4},
            .tensors = {{sample.tensors[0], {{.parts = 2}, {.parts = 3}, {.parts = 4}}},
                        {sample.tensors[1], {{.dim = 1, .parts = 2}, {.parts = 3}, {.first = 2}}},
                        {sample.tensors[2], {{.first = 1}, {.parts = 3}, {.first = 3}}},
                        {sample.tensors[3], {all, {.parts = 3}, {.parts = 4}}}}};
        const Hash nonce{1, 2};
        write_shards(random, start_step(folder / "", 7, plan.num_writers()), sample, nonce, plan);
        commit_step(folder / "", sample_description(), nonce, plan, {});
        expect_views(step_path(folder / "", 7), sample);
        EXPECT_EQ(Checkpoint(step_path(folder / "", 7)).faults(), std::vector<std::string>());
    }
}

// As a run cuts experts: rows over shards, context and tensor ranks together or in two sets.
TEST(Views, JoinNeighboursOnSeveralAxes) {
    Random random(9);
    for (const int64_t rows : {1, 23, 31, 48}) {
        const ScratchFolder folder;
        Sample sample;
        for (const char* name : {"all", "all and replicas", "inner and outer", "outer and inner", "others"})
            sample.add(random, {name, ElementType::Float32, {rows, 2}});
        const GridCut replica{.first = 1, .axes = {3}};
        const SavePlan plan{
            .grid = {2, 3, 2, 2},
            .tensors = {
                {sample.tensors[0], {{.parts = 12, .axes = {0, 1, 2}}, replica}},
                {sample.tensors[1], {{.parts = 12, .axes = {0, 1, 2}}, {.parts = 2, .axes = {3}}}},
                {sample.tensors[2], {{.parts = 6, .axes = {1, 2}}, {.parts = 2, .axes = {0}}, replica}},
                {sample.tensors[3], {replica, {.parts = 2, .axes = {0}}, {.parts = 6, .axes = {1, 2}}}},
                {sample.tensors[4], {{.parts = 4, .axes = {0, 2}}, {.first = 2, .axes = {1}}, replica}}}};
        const Hash nonce{1, 2};
        write_shards(random, start_step(folder / "", 7, plan.num_writers()), sample, nonce, plan);
        commit_step(folder / "", sample_description(), nonce, plan, {});
        expect_views(step_path(folder / "", 7), sample);
        EXPECT_EQ(Checkpoint(step_path(folder / "", 7)).faults(), std::vector<std::string>());
    }
}

TEST(Views, ReachShardsInFolders) {
    Random random(10);
    const ScratchFolder folder;
    Sample sample;
    for (const char* name : {"a", "b"}) sample.add(random, {name, ElementType::Float32, {14, 22}});
    const SavePlan plan{
        .grid = {7, 11, 13},
        .tensors = {{sample.tensors[0], {{.parts = 7}, {.dim = 1, .parts = 11}, {.first = 12}}},
                    {sample.tensors[1], {{.first = 6}, {.first = 10}, {.parts = 13}}}}};
    const Hash nonce{1, 2};
    write_shards(random, start_step(folder / "", 7, plan.num_writers()), sample, nonce, plan);
    commit_step(folder / "", sample_description(), nonce, plan, {});
    const fs::path step = step_path(folder / "", 7);
    EXPECT_TRUE(fs::exists(step / "shards-00000/shard-00999-of-01001.h5"));
    EXPECT_TRUE(fs::exists(step / "shards-00001/shard-01000-of-01001.h5"));
    expect_views(step, sample);
    EXPECT_EQ(read(Checkpoint(step), sample.tensors[1], layout::whole(sample.tensors[1].shape)),
              sample.bytes.at("b"));
}

}  // namespace
}  // namespace argosy::checkpoint
