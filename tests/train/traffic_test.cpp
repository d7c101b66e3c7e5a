// The launches that parallel/traffic.h forecasts are those that a step of recorded ranks submits.
#include "parallel/traffic.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "support/communicator_double.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using comm::OpKind;

/// Axes, kind, type, elements of a launch.
using Launch = std::tuple<std::string, OpKind, ElementType, int64_t>;

constexpr parallel::Precision kPrecision = {at::kFloat, at::kBFloat16, at::kFloat};
/// The sums over ranks are in fp32 also for gradients in bf16.
constexpr parallel::Precision kRounded = {at::kFloat, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true};

int64_t num_elements(const std::vector<comm::RecordedOp>& launch) {
    int64_t sum = 0;
    for (const comm::RecordedOp& op : launch) sum += op.num_elements;
    return sum;
}

/// The forecast leaves out the totals of a step over the world, the loss's sums and maxima over the
/// vocabulary (two numbers for each token), and the exchange of a tied table's gradients between two stages.
bool is_foreseen(const std::vector<comm::RecordedOp>& launch, int64_t tokens) {
    const comm::RecordedOp& one = launch[0];
    if (one.group == "world" || one.kind == OpKind::Receive) return false;
    const bool of_the_loss =
        one.group == "tp" && one.kind == OpKind::AllReduce && num_elements(launch) <= 2 * tokens;
    return !of_the_loss && (one.group != "pp" || launch.size() == 1);
}

std::set<Launch> submitted(const TinyRunOptions& options, int rank, int num_ranks) {
    Submissions submissions;
    comm::RecordingCommunicator world(rank, num_ranks, submissions.recording);
    TinyRun(options, world).train(0);
    std::set<Launch> launches;
    for (const auto& launch : submissions.log) {
        if (!is_foreseen(launch, options.microbatch_size * TinyRun::kSeqLen)) continue;
        launches.insert({launch[0].group, launch[0].kind, launch[0].type, num_elements(launch)});
    }
    return launches;
}

std::set<Launch> foreseen(const TinyRunOptions& options, int rank, int num_ranks) {
    const layout::MeshShape shape = layout::resolve(options.layout.mesh, num_ranks);
    const model::ModelSpec spec = tiny_spec(options.family);
    std::vector<int> stage_layers = options.layout.stage_layers;
    if (stage_layers.empty()) stage_layers = {static_cast<int>(spec.num_layers)};
    const auto placement = parallel::place_parameters(spec, shape, stage_layers);
    std::set<Launch> launches;
    for (const auto& one :
         parallel::step_traffic(placement, shape, shape.coordinates(rank), options.precision, spec.dim,
                                options.microbatch_size * TinyRun::kSeqLen)) {
        launches.insert({shape.used(one.axes).name(), one.kind, comm::element_type(one.type), one.elements});
    }
    return launches;
}

const std::vector<Layout> kLayouts = {
    {"one", {.shard = 1}},
    {"fsdp", {.shard = 2}},
    {"ddp", {.replicate = 2, .shard = 1}},
    {"tp", {.shard = 1, .tensor = 2}},
    {"pp", {.pipeline = 2, .shard = 1}, {2, 3}},
    {"hsdp", {.replicate = 2, .shard = 2}},
    {"tp4", {.shard = 1, .tensor = 4}},
    {"fsdp_tp", {.shard = 2, .tensor = 2}},
    {"ddp_tp", {.replicate = 2, .shard = 1, .tensor = 2}},
    {"pp_tp", {.pipeline = 2, .shard = 1, .tensor = 2}, {2, 3}},
    {"pp_ddp", {.pipeline = 2, .replicate = 2, .shard = 1}, {2, 3}},
    {"pp_fsdp", {.pipeline = 2, .shard = 2}, {2, 3}, "1F1B", parallel::Reshard::Never}};

int num_ranks(const layout::MeshRequest& mesh) {
    return mesh.pipeline * mesh.replicate * mesh.shard * mesh.tensor;
}

TEST(Traffic, IsWhatAStepSubmits) {
    const c10::InferenceMode guard;
    for (const char* family : {"llama3", "qwen2", "qwen3"}) {
        for (const Layout& layout : kLayouts) {
            for (const parallel::Precision& precision : {kPrecision, kRounded}) {
                const TinyRunOptions options{
                    .family = family, .layout = layout, .precision = precision, .microbatch_size = 2};
                for (int rank = 0; rank < num_ranks(layout.mesh); ++rank) {
                    EXPECT_EQ(foreseen(options, rank, num_ranks(layout.mesh)),
                              submitted(options, rank, num_ranks(layout.mesh)))
                        << family << " " << layout.name << " rank " << rank << " "
                        << precision.bf16_gradients;
                }
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
