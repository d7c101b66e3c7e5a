// A step of Llama 3.1 405B on 16,384 writers, whose shards have tables and user blocks but no bytes of
// tensors: its manifest with its views is small, and is written and opened in seconds.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <iostream>

#include "base/raw_file.h"
#include "checkpoint/input_file.h"
#include "checkpoint/sample.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDim = 16384, kHidden = 53248, kKeyValues = 1024, kVocabulary = 128256;
constexpr int kLayers = 126, kWriters = 16384;

/// A weight matrix or a norm, and the dim that tensor parallelism cuts; -1: none.
struct Weight {
    const char* name;
    std::vector<int64_t> shape;
    int tensor_dim;
};
const std::vector<Weight> kBlock = {
    {"attention_norm.weight", {kDim}, -1},          {"attention.wq.weight", {kDim, kDim}, 0},
    {"attention.wk.weight", {kKeyValues, kDim}, 0}, {"attention.wv.weight", {kKeyValues, kDim}, 0},
    {"attention.wo.weight", {kDim, kDim}, 1},       {"ffn_norm.weight", {kDim}, -1},
    {"feed_forward.w1.weight", {kHidden, kDim}, 0}, {"feed_forward.w3.weight", {kHidden, kDim}, 0},
    {"feed_forward.w2.weight", {kDim, kHidden}, 1}};

struct Layout {
    int pipeline, tensor, shard;
};

void add_weight(SavePlan& plan, const Layout& layout, int stage, const std::string& name,
                const Weight& weight) {
    const int first = plan.tensors.size() % layout.tensor;
    const GridCut tensor_cut =
        weight.tensor_dim < 0 ? GridCut{.first = first} : GridCut{weight.tensor_dim, layout.tensor};
    for (const char* kind : {"model/", "optimizer/first/", "optimizer/second/"}) {
        plan.tensors.push_back({{kind + name, ElementType::Float32, weight.shape},
                                {{.first = stage}, tensor_cut, {.parts = layout.shard}, {}}});
    }
}

SavePlan plan_of(const Layout& layout) {
    SavePlan plan{.grid = {layout.pipeline, layout.tensor, layout.shard, 1}, .tensors = {}};
    add_weight(plan, layout, 0, "tok_embeddings.weight", {"", {kVocabulary, kDim}, 0});
    for (int layer = 0; layer < kLayers; ++layer) {
        for (const Weight& weight : kBlock) {
            add_weight(plan, layout, layer * layout.pipeline / kLayers,
                       fmt::format("layers.{}.{}", layer, weight.name), weight);
        }
    }
    add_weight(plan, layout, layout.pipeline - 1, "norm.weight", {"", {kDim}, -1});
    add_weight(plan, layout, layout.pipeline - 1, "output.weight", {"", {kVocabulary, kDim}, 0});
    return plan;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
}

/// A shard with a user block alone, in a sparse file: what a commit reads.
void write_user_block(const fs::path& partial, const SavePlan& plan, const Hash& set, int writer) {
    UserBlock block{.kind = FileKind::Shard, .num_bytes = 1 << 20, .table_at = kUserBlockBytes, .set = set};
    const std::string text = to_text(block);
    const RawFile file = RawFile::create(partial / shard_name(writer, plan.num_writers()));
    file.write_at(0, std::as_bytes(std::span(text)));
    fs::resize_file(file.path(), block.num_bytes);
}

class Scale : public ::testing::TestWithParam<Layout> {};

TEST_P(Scale, ManifestWithViewsIsSmallAndQuick) {
    const ScratchFolder folder;
    const SavePlan plan = plan_of(GetParam());
    ASSERT_EQ(plan.num_writers(), kWriters);
    const Hash nonce{1, 2}, set = set_of(nonce, plan);
    const fs::path partial = start_step(folder / "", 7, kWriters);
    for (int writer = 0; writer < kWriters; ++writer) write_user_block(partial, plan, set, writer);

    auto start = std::chrono::steady_clock::now();
    commit_step(folder / "", sample_description(), nonce, plan, kSampleAssets);
    const double commit_seconds = seconds_since(start);
    const fs::path step = step_path(folder / "", 7);

    start = std::chrono::steady_clock::now();
    const Checkpoint checkpoint(step);
    const double open_seconds = seconds_since(start);
    const auto manifest_bytes = static_cast<int64_t>(fs::file_size(step / "checkpoint.h5"));
    const int64_t table_bytes = InputFile(step / "checkpoint.h5").block().table_bytes;
    ShardTable own{.set = set};
    for (const TensorSlab& each : slabs_of(plan, 5))
        own.tensors.push_back({each.tensor, {{.slab = each.slab}}});
    const auto shard_bytes = static_cast<int64_t>(to_json(own).size());
    std::cout << fmt::format(
        "{} tensors: manifest with views {:.2f} MiB, of which table {:.2f}; commit {:.2f} s, open {:.3f} s; "
        "a rank "
        "that loads its own shard parses {:.2f} MiB; peak resident {:.0f} MiB\n",
        plan.tensors.size(), manifest_bytes / 1048576.0, table_bytes / 1048576.0, commit_seconds,
        open_seconds, (table_bytes + shard_bytes) / 1048576.0, peak_resident_bytes() / 1048576.0);

    EXPECT_EQ(checkpoint.tensors().size(), plan.tensors.size());
    EXPECT_EQ(checkpoint.manifest().plan, plan);
    EXPECT_LE(manifest_bytes, 64 << 20);
    EXPECT_LE(table_bytes + shard_bytes, 8 << 20);
    EXPECT_LT(commit_seconds, 20);
    EXPECT_LT(open_seconds, 5);
    EXPECT_LT(peak_resident_bytes(), int64_t{1} << 30);
    int64_t num_slabs = 0;
    for (const TensorInfo& tensor : checkpoint.tensors()) num_slabs += checkpoint.num_slabs(tensor);
    EXPECT_GT(num_slabs, 1'000'000);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder / "")) {
        if (!entry.is_directory()) continue;
        EXPECT_LE(std::distance(fs::directory_iterator(entry), fs::directory_iterator()), 1024)
            << entry.path();
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Scale, ::testing::Values(Layout{16, 8, 128}, Layout{1, 8, 2048}),
                         [](const auto& test) { return test.index == 0 ? "Pipeline16Tensor8" : "Tensor8"; });

}  // namespace
}  // namespace argosy::checkpoint
