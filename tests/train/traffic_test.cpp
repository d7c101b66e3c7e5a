// The launches that parallel/traffic.h forecasts are those that a step submits.
#include "parallel/traffic.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "support/communicator_double.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using comm::OpKind;

/// Axes, kind, type, elements of a launch.
using Launch = std::tuple<std::string, OpKind, at::ScalarType, int64_t>;

constexpr parallel::Precision kPrecision = {at::kFloat, at::kBFloat16, at::kFloat};
/// The sums over ranks are in fp32 also for gradients in bf16.
constexpr parallel::Precision kRounded = {at::kFloat, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true};

/// The forecast leaves out the totals of a step over the world, the loss's sums and maxima over the
/// vocabulary (two numbers for each token), and the exchange of a tied table's gradients between two stages.
bool is_foreseen(const Submission& one, int64_t tokens) {
    if (one.group == world().name() || one.kinds.at(0) == OpKind::Receive) return false;
    const bool of_the_loss =
        one.group == "tp" && one.kinds.at(0) == OpKind::AllReduce && one.elements <= 2 * tokens;
    return !of_the_loss && one.kinds.size() * (one.group == "pp") < 2;
}

std::set<Launch> submitted(const TinyRunOptions& options) {
    Submissions log;
    CountingCommunicator counted(world(), log);
    TinyRun run(options, counted);
    run.train(0);
    log.clear();
    run.train(1);
    std::set<Launch> launches;
    for (const Submission& one : log) {
        if (!is_foreseen(one, options.microbatch_size * TinyRun::kSeqLen)) continue;
        launches.insert({one.group, one.kinds[0], one.type, one.elements});
    }
    return launches;
}

std::set<Launch> foreseen(const TinyRunOptions& options) {
    const layout::MeshShape shape = layout::resolve(options.layout.mesh, world().size());
    const model::ModelSpec spec = tiny_spec(options.family);
    std::vector<int> stage_layers = options.layout.stage_layers;
    if (stage_layers.empty()) stage_layers = {static_cast<int>(spec.num_layers)};
    const auto placement = parallel::place_parameters(spec, shape, stage_layers);
    std::set<Launch> launches;
    for (const auto& one :
         parallel::step_traffic(placement, shape, shape.coordinates(world().rank()), options.precision,
                                spec.dim, options.microbatch_size * TinyRun::kSeqLen)) {
        launches.insert({shape.used(one.axes).name(), one.kind, one.type, one.elements});
    }
    return launches;
}

std::vector<Layout> traffic_layouts() {
    switch (world().size()) {
        case 2:
            return {{"fsdp", {.shard = 2}},
                    {"ddp", {.replicate = 2, .shard = 1}},
                    {"tp", {.shard = 1, .tensor = 2}},
                    {"pp", {.pipeline = 2, .shard = 1}, {2, 3}}};
        case 4:
            return {{"hsdp", {.replicate = 2, .shard = 2}},
                    {"tp4", {.shard = 1, .tensor = 4}},
                    {"fsdp_tp", {.shard = 2, .tensor = 2}},
                    {"ddp_tp", {.replicate = 2, .shard = 1, .tensor = 2}},
                    {"pp_tp", {.pipeline = 2, .shard = 1, .tensor = 2}, {2, 3}},
                    {"pp_ddp", {.pipeline = 2, .replicate = 2, .shard = 1}, {2, 3}},
                    {"pp_fsdp", {.pipeline = 2, .shard = 2}, {2, 3}, "1F1B", parallel::Reshard::Never}};
        default:
            return {{"one", {}}};
    }
}

TEST(Traffic, IsWhatAStepSubmits) {
    for (const char* family : {"llama3", "qwen2", "qwen3"}) {
        for (const Layout& layout : traffic_layouts()) {
            SCOPED_TRACE(std::string(family) + " " + layout.name);
            for (const parallel::Precision& precision : {kPrecision, kRounded}) {
                const TinyRunOptions options{
                    .family = family, .layout = layout, .precision = precision, .microbatch_size = 2};
                EXPECT_EQ(foreseen(options), submitted(options)) << precision.bf16_gradients;
            }
        }
    }
}

TEST(Traffic, CountsUnitsOfOneSize) {
    const model::ModelSpec spec = tiny_spec("llama3");
    const layout::MeshShape shape{{1, 1, 4, 1, 1}};
    const auto traffic =
        parallel::step_traffic(parallel::place_parameters(spec, shape, {5}), shape, {}, {}, spec.dim, 24);
    int64_t gathers = 0, most = 0;
    for (const auto& one : traffic) {
        if (one.kind != OpKind::AllGather) continue;
        gathers += one.num_launches;
        most = std::max(most, one.num_launches);
    }
    EXPECT_EQ(gathers, spec.num_layers + 2);
    EXPECT_EQ(most, spec.num_layers) << "blocks are alike";
}

TEST(Traffic, HasASumOverReplicasForEachUnit) {
    const model::ModelSpec spec = tiny_spec("qwen2");  // with a tied table
    const layout::MeshShape shape{{1, 2, 3, 1, 1}};
    const auto traffic = parallel::step_traffic(parallel::place_parameters(spec, shape, {5}), shape, {},
                                                kPrecision, spec.dim, 24);
    int64_t sums = 0, elements = 0, reduced = 0;
    for (const auto& one : traffic) {
        if (one.kind == OpKind::ReduceScatter) reduced += one.num_launches * one.elements;
        if (one.kind != OpKind::AllReduce) continue;
        sums += one.num_launches;
        elements += one.num_launches * one.elements;
    }
    EXPECT_EQ(sums, spec.num_layers + 2);
    // The table is reduced by embedding and head, and summed once.
    const int64_t rows = layout::chunk(spec.vocab_size, 3, 0).size;
    EXPECT_EQ(3 * (elements + rows * spec.dim), reduced);
}

}  // namespace
}  // namespace argosy::testing
