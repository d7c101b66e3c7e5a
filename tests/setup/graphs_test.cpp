// When a run records CUDA graphs; pretrain.gpu tests runs.
#include "setup/graphs.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "setup/options.h"

namespace argosy::setup {
namespace {

using config::JobConfig;
using config::Switch;

constexpr int kNccl = 22703, kDriver = 12090;
constexpr GraphFacts kNew = {.nccl_version = kNccl, .driver_version = kDriver};
constexpr GraphFacts kOldNccl = {.nccl_version = kNccl - 1, .driver_version = kDriver};
constexpr GraphFacts kOldDriver = {.nccl_version = kNccl, .driver_version = kDriver - 10};

JobConfig with(Switch graphs, int pipeline = 1) {
    JobConfig config;
    config.compile.graphs = graphs;
    config.parallelism.pipeline_parallel_degree = pipeline;
    return config;
}

void expect_off(const JobConfig& config, const GraphFacts& facts, const char* part) {
    const GraphChoice choice = choose_graphs(config, facts);
    EXPECT_FALSE(choice.on);
    EXPECT_NE(choice.why_off.find(part), std::string::npos) << choice.why_off;
}

TEST(Graphs, AreOnByDefaultWhereTheyWereTried) {
    EXPECT_TRUE(choose_graphs({}, kNew).on);
    EXPECT_TRUE(choose_graphs({}, kOldNccl).on);  // no messages
    expect_off(with(Switch::Auto, 2), kNew, "not tried between stages");
    GraphFacts nodes = kNew;
    nodes.several_nodes = true;
    expect_off({}, nodes, "not tried on several nodes; compile.graphs = true turns them on");
    EXPECT_TRUE(choose_graphs(with(Switch::On), nodes).on);
    EXPECT_TRUE(choose_graphs(with(Switch::On, 2), kNew).on);
}

TEST(Graphs, WithMessagesNeedANewNcclAndDriver) {
    for (const GraphFacts& facts : {kOldNccl, kOldDriver}) {
        EXPECT_ERROR(choose_graphs(with(Switch::On, 2), facts), UserError, "compile.graphs = true",
                     "parallelism.pipeline_parallel_degree = 2", "NCCL 2.27.3 or newer",
                     "a driver for CUDA 12.9 or newer", "set compile.graphs = auto");
        EXPECT_FALSE(choose_graphs(with(Switch::Auto, 2), facts).on);
        EXPECT_EQ(choose_graphs(with(Switch::Off, 2), facts).why_off, "");
    }
    expect_off(with(Switch::Auto, 2), kOldDriver, "may hang under NCCL 2.27.3 and a driver for CUDA 12.8");

    JobConfig ring;
    ring.parallelism.context_parallel_degree = 2;
    EXPECT_TRUE(choose_graphs(ring, kOldNccl).on);  // it gathers
    ring.parallelism.context_parallel_rotate_method = config::RotateMethod::Ring;
    EXPECT_TRUE(choose_graphs(ring, kNew).on);
    expect_off(ring, kOldNccl, "rotate_method = ring");

    JobConfig tensor;
    tensor.parallelism.tensor_parallel_degree = 2;
    tensor.parallelism.enable_async_tensor_parallel = Switch::On;
    expect_off(tensor, kOldNccl, "enable_async_tensor_parallel = true");
}

TEST(Graphs, ThatTheUserDemandsExcludeAnOverlapThatNobodyDemands) {
    for (const GraphFacts& facts : {kOldNccl, kOldDriver}) {
        EXPECT_NE(
            why_no_overlap(with(Switch::On), facts).find("enable_async_tensor_parallel = true, graphs may"),
            std::string::npos);
        EXPECT_EQ(why_no_overlap(with(Switch::Auto), facts), "");
    }
    EXPECT_EQ(why_no_overlap(with(Switch::On), kNew), "");
    JobConfig copies = with(Switch::On);
    copies.comm.peer_copies = true;
    EXPECT_NE(why_no_overlap(copies, kNew).find("comm.peer_copies"), std::string::npos);
    JobConfig none = with(Switch::On);
    none.compile.enable = false;
    EXPECT_EQ(why_no_overlap(none, kOldNccl), "");
}

TEST(Graphs, HaveNoExperts) {
    GraphFacts experts = kNew;
    experts.has_experts = true;
    expect_off({}, experts, "the model has experts");
    EXPECT_ERROR(choose_graphs(with(Switch::On), experts), UserError, "compile.graphs = true",
                 "the model has experts", "set compile.graphs = auto or false");
    EXPECT_EQ(choose_graphs(with(Switch::Off), experts).why_off, "");
    EXPECT_FALSE(uses_graphs({}, experts));
    // Whoever does not choose, as a plan, has none either.
    const layout::MeshShape mesh{{1, 1, 1, 1, 1}};
    EXPECT_ERROR(trainer_options(with(Switch::On), model::preset("qwen3_moe", "debugmodel"), mesh), UserError,
                 "the model has experts", "set compile.graphs = auto or false");
    EXPECT_TRUE(trainer_options({}, model::preset("llama3", "debugmodel"), mesh).executor.graphs);
    EXPECT_FALSE(trainer_options({}, model::preset("qwen3_moe", "debugmodel"), mesh).executor.graphs);
}

TEST(Graphs, HaveNoCopiesToPeers) {
    JobConfig config;
    config.comm.peer_copies = true;
    config.parallelism.tensor_parallel_degree = 2;
    EXPECT_TRUE(choose_graphs(config, kNew).on) << "there are no exchanges";
    config.parallelism.enable_async_tensor_parallel = Switch::On;
    expect_off(config, kNew, "a graph would repeat its numbers");
    EXPECT_FALSE(uses_graphs(config));
    config.compile.graphs = Switch::On;
    EXPECT_ERROR(choose_graphs(config, kNew), UserError, "compile.graphs = true", "comm.peer_copies",
                 "set compile.graphs = auto or false");
}

TEST(Graphs, WithoutAUseGiveNoReason) {
    JobConfig config = with(Switch::On, 2);
    config.compile.enable = false;
    EXPECT_FALSE(choose_graphs(config, kOldNccl).on);
    EXPECT_EQ(choose_graphs(config, kOldNccl).why_off, "");
    EXPECT_FALSE(uses_graphs(config));
    EXPECT_FALSE(uses_graphs(with(Switch::Auto, 2)));
    EXPECT_TRUE(uses_graphs({}));
}

}  // namespace
}  // namespace argosy::setup
