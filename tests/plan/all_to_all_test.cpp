// The exposed all-to-alls of a planned step, with and without shared experts beside them.
#include "plan/all_to_all.h"

#include <gtest/gtest.h>

#include "ops/ops_context.h"
#include "plan/gpus.h"
#include "plan/plan.h"
#include "plan/plan_text.h"

namespace argosy::plan {
namespace {

using Kind = Event::Kind;

// An all-to-all of 3 s beside products of 2 s, behind another of its lane that the rank waits for at once.
TEST(AllToAllWaits, AreThoseOfTheStepAndOfOneWithoutOverlap) {
    const Launch gather{.group = "dp_shard", .seconds = 7, .kind = comm::OpKind::AllGather},
        exchange{.group = "ep", .seconds = 3, .kind = comm::OpKind::AllToAll, .purpose = {"experts"}};
    RankTrace trace{.launches = {gather, exchange, exchange}};
    trace.events = {{.kind = Kind::Launch, .launch = 0},   {.kind = Kind::Launch, .launch = 1},
                    {.kind = Kind::Wait, .launch = 1},     {.kind = Kind::Launch, .launch = 2},
                    {.kind = Kind::Compute, .seconds = 2}, {.kind = Kind::Wait, .launch = 2},
                    {.kind = Kind::Wait, .launch = 0}};
    const auto waits_of = [](const RankTrace& rank) {
        return all_to_all_waits({&rank, 1}, simulate_step({&rank, 1}));
    };
    const auto waits = waits_of(trace);
    ASSERT_EQ(waits.size(), 1u);
    EXPECT_EQ(waits[0].exposed, 4);
    EXPECT_EQ(waits[0].without_overlap, 6);
    trace.launches[1].purpose = trace.launches[2].purpose = {};
    EXPECT_TRUE(waits_of(trace).empty()) << "Muon's";
    EXPECT_EQ(text_of(waits[0], 5),
              "experts   rank 5 waits 4 s for all-to-alls; 6 s without the shared experts beside them\n");
}

train::TrainerOptions options(int64_t shared_hidden_dim) {
    train::TrainerOptions made{.spec = {.name = "glm4_moe",
                                        .vocab_size = 640,
                                        .dim = 64,
                                        .num_layers = 2,
                                        .num_heads = 4,
                                        .num_kv_heads = 2,
                                        .head_dim = 16,
                                        .hidden_dim = 160},
                               .model = {.seq_len = 64, .microbatch_size = 2},
                               .num_microbatches = 2};
    made.spec.experts = {
        .router = {.num_experts = 8, .top_k = 2}, .hidden_dim = 32, .shared_hidden_dim = shared_hidden_dim};
    return made;
}

/// The seconds of products between the launch of each all-to-all and the wait for it.
std::vector<double> seconds_beside(const RankTrace& trace) {
    std::vector<double> found;
    double products = 0;
    for (const Event& event : trace.events) {
        if (event.kind == Kind::Compute) products += event.product_seconds;
        if (event.kind == Kind::Compute || trace.launches[event.launch].kind != comm::OpKind::AllToAll)
            continue;
        if (event.kind == Kind::Launch) found.push_back(-products);
        if (event.kind == Kind::Wait) found.back() += products;
    }
    return found;
}

// In each layer and pass, slots go to their experts and come back.
TEST(AllToAllWaits, SharedExpertsComputeWhileSlotsTravel) {
    const ops::OpsContext tensors;
    const layout::MeshShape mesh = layout::resolve({.shard = 4, .expert = 4, .num_experts = 8}, 4);
    for (const auto recompute : {model::RecomputeMode::None, model::RecomputeMode::Full}) {
        for (const int64_t shared : {0, 48}) {
            train::TrainerOptions how = options(shared);
            how.recompute = recompute;
            const auto beside = seconds_beside(trace_rank(how, mesh, /*rank=*/0, named_gpu("h100")));
            const bool repeats = recompute == model::RecomputeMode::Full;
            EXPECT_EQ(beside.size(), 2 * 2 * (repeats ? 5 : 4)) << "of 2 layers and 2 microbatches";
            for (const double seconds : beside) EXPECT_EQ(seconds > 0, shared > 0);
        }
    }
}

TEST(AllToAllWaits, APlanPrintsThem) {
    const ops::OpsContext tensors;
    config::JobConfig config;
    config.model.name = "qwen3_moe";
    config.training.seq_len = 256;
    config.parallelism.expert_parallel_degree = 8;
    const std::string text = plan_text(make_plan(config, 8, named_gpu("h100")));
    EXPECT_NE(text.find("\nexperts   rank 0 waits "), std::string::npos) << text;
    EXPECT_EQ(text.find("shared experts"), std::string::npos) << text;
    config.parallelism.expert_parallel_degree = 1;
    EXPECT_EQ(plan_text(make_plan(config, 8, named_gpu("h100"))).find("\nexperts "), std::string::npos);
}

}  // namespace
}  // namespace argosy::plan
