// Every mesh finds the scores that one process finds with the layer-by-layer model, which is tested against
// transformers (score_test.cpp).
#include "eval/mesh_scorer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <random>

#include "base/error.h"
#include "eval/score.h"
#include "eval/training_evaluation.h"
#include "expect_error.h"
#include "interop/memory_source.h"
#include "observe/memory.h"
#include "ops/ops_context.h"
#include "resume/loaded_parts.h"
#include "resume/run_state.h"
#include "scratch_folder.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::eval {
namespace {

using testing::Layout;
using testing::MemorySource;
using testing::world;

constexpr uint64_t kSeed = 5;
constexpr int64_t kSeqLen = 32, kMicrobatch = 2;
constexpr parallel::ContextOptions kRing{.rotation = parallel::ContextOptions::Rotation::Ring};

/// The layouts that this suite's number of ranks can take.
std::vector<Layout> layouts() {
    switch (world().size()) {
        case 1:
            return {{"one"}};
        case 2:
            return {{"dp2", {.replicate = 2, .shard = 1}},
                    {"shard2", {.shard = 2}},
                    {"tp2", {.tensor = 2}},
                    {"pp2", {.pipeline = 2}, {3, 2}},
                    {"cp2", {.context = 2}}};
        default:
            return {{"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}},
                    {"dp2_tp2", {.replicate = 2, .shard = 1, .tensor = 2}},
                    {"dp2_pp2_two_stages",
                     {.pipeline = 2, .replicate = 2, .shard = 1},
                     {1, 2, 1, 1},
                     "Interleaved1F1B"},
                    {"hsdp2x2", {.replicate = 2, .shard = 2}},
                    {.name = "shard2_cp2_ring", .mesh = {.shard = 2, .context = 2}, .context = kRing}};
    }
}

train::TrainerOptions options_of(const Layout& layout, const model::ModelSpec& spec, at::ScalarType type) {
    return {.spec = spec,
            .model = {.precision = {type, type, type},
                      .context = layout.context,
                      .seq_len = kSeqLen,
                      .microbatch_size = kMicrobatch},
            .stage_layers = layout.stage_layers,
            .schedule = layout.schedule};
}

/// A model for inference on a mesh, with the weights of a source.
struct Loaded {
    Loaded(const Layout& layout, const MemorySource& source, const model::ModelSpec& spec,
           at::ScalarType type)
        : mesh(layout::resolve(layout.mesh, world().size()), world()),
          options(options_of(layout, spec, type)),
          model(spec, place_parameters(options, mesh.shape()), mesh, options.model,
                parallel::ModelUse::Inference),
          scorer(model, options, mesh) {
        resume::HeldWeights weights(model);
        resume::load_slabs(source, weights.slabs());
        weights.changed();
    }

    comm::Mesh mesh;
    train::TrainerOptions options;
    parallel::ParallelModel model;
    MeshScorer scorer;
};

struct Asked {
    std::vector<Tokens> records;
    std::vector<Window> windows;
};

/// Records of 2 to 80 tokens: rolling windows, and continuations of which only the last tokens count.
Asked random_work(int64_t num_records, int64_t vocab_size) {
    std::mt19937 random(7 + num_records);
    Asked work;
    for (int64_t i = 0; i < num_records; ++i) {
        Tokens record(2 + random() % 79);
        for (uint32_t& token : record) token = random() % vocab_size;
        const int64_t size = std::ssize(record), inputs = std::min<int64_t>(size - 1, kSeqLen);
        if (i % 2 == 0) {
            append_windows(i, size, kSeqLen, work.windows);
        } else {
            work.windows.push_back({i, size - 1 - inputs, inputs, std::min<int64_t>(inputs, 1 + i % 5)});
        }
        work.records.push_back(std::move(record));
    }
    return work;
}

void expect_scores(const std::vector<RecordScore>& found, const std::vector<RecordScore>& expected,
                   double tolerance) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i].log_likelihood / expected[i].log_likelihood, 1, tolerance) << "record " << i;
        EXPECT_EQ(found[i].num_greedy, expected[i].num_greedy) << "record " << i;
        EXPECT_EQ(found[i].num_predicted, expected[i].num_predicted) << "record " << i;
    }
}

void compare(const std::string& family, at::ScalarType type, double tolerance,
             std::initializer_list<int64_t> counts) {
    const ops::OpsContext context;
    const model::ModelSpec spec = testing::tiny_spec(family);
    const MemorySource source(spec, kSeed, type);
    const interop::LayerwiseModel whole(source, spec, type);
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(family + " on " + layout.name);
        Loaded loaded(layout, source, spec, type);
        for (const int64_t count : counts) {
            SCOPED_TRACE(count);
            const auto [records, windows] = random_work(count, spec.vocab_size);
            expect_scores(loaded.scorer.score(records, windows), score_windows(whole, records, windows, {}),
                          tolerance);
        }
    }
}

/// Also with fewer windows than ranks, and with the same scorer again.
TEST(MeshScorer, FindsTheScoresOfOneProcess) {
    compare("llama3", at::kDouble, 1e-12, {1, 3, 17});
    compare("olmo3", at::kDouble, 1e-12, {17});
}

TEST(MeshScorer, FindsThemInFloat32) {
    compare("qwen3", at::kFloat, 1e-5, {17});
    compare("qwen2", at::kFloat, 1e-5, {17});
}

TEST(MeshScorer, ReportsItsProgressOnAllRanks) {
    const ops::OpsContext context;
    const model::ModelSpec spec = testing::tiny_spec("qwen3");
    const MemorySource source(spec, kSeed);
    Loaded loaded(layouts().front(), source, spec, at::kFloat);
    const auto [records, windows] = random_work(30, spec.vocab_size);
    std::vector<double> shares;
    loaded.scorer.score(records, windows, [&](double share) { shares.push_back(share); });
    EXPECT_GT(shares.size(), 2);
    EXPECT_TRUE(std::ranges::is_sorted(shares));
    EXPECT_EQ(shares.back(), 1);
}

/// One rank's file has another token, or one record more.
TEST(ReadTasks, RefusesTasksThatDifferBetweenRanks) {
    const ScratchFolder folder;
    const bool is_last = world().rank() + 1 == world().size();
    config::JobConfig config;
    config.evaluation.tasks = {(folder / "task.jsonl").string()};
    const auto read = [&](const std::string& own) {
        write_file(folder / "task.jsonl", is_last ? own : "{\"tokens\": [1, 2]}\n");
        return read_tasks(config, testing::tiny_spec("qwen3"), world()).size();
    };
    EXPECT_EQ(read("{\"tokens\": [1, 2]}\n"), 1u);
    if (world().size() == 1) return;
    EXPECT_ERROR(read("{\"tokens\": [1, 3]}\n"), UserError, "task.jsonl", "rank 0 has 1 records");
    EXPECT_ERROR(read("{\"tokens\": [1, 2]}\n{\"tokens\": [1, 2]}\n"), UserError, "has 2 records");
}

/// A rank's tensors are its share of the weights, once, and the activations of a microbatch with the gathered
/// weights of two of twenty layers: no gradients, no moments, no second copy.
TEST(MeshScorer, HoldsAShareOfTheWeightsAndNothingElse) {
    static observe::MemoryMeter meter = observe::MemoryMeter::install();
    const ops::OpsContext context;
    model::ModelSpec spec = testing::tiny_spec("qwen3");
    spec.dim = 64;
    spec.hidden_dim = 256;
    spec.num_layers = 20;
    const MemorySource source(spec, kSeed);
    const auto [records, windows] = random_work(30, spec.vocab_size);
    for (Layout layout : layouts()) {
        SCOPED_TRACE(layout.name);
        if (layout.stage_layers.size() == 2) layout.stage_layers = {10, 10};
        if (layout.stage_layers.size() == 4) layout.stage_layers = {5, 5, 5, 5};
        const int64_t before = meter.current_bytes();
        Loaded loaded(layout, source, spec, at::kFloat);
        const int replicas = loaded.mesh.degree(layout::Axis::Replicate);
        const int64_t whole = model::num_parameters(spec) * 4, share = whole * replicas / world().size();
        const int64_t held = meter.current_bytes() - before;
        EXPECT_GT(held, share * 9 / 10);  // the embedding and the heads do not divide evenly
        EXPECT_LT(held, share * 12 / 10);
        meter.reset_peak();
        loaded.scorer.score(records, windows);
        const int64_t activations = meter.peak_bytes() - before - held;
        EXPECT_LT(activations, 1000000) << share;
    }
}

}  // namespace
}  // namespace argosy::eval
