// The trace of a rank against formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "expect_error.h"
#include "model/flops.h"
#include "ops/ops_context.h"
#include "plan/gpus.h"
#include "plan/plan.h"
#include "plan/plan_text.h"
#include "plan/rank_trace.h"
#include "plan/simulate.h"
#include "setup/options.h"

namespace argosy::plan {
namespace {

using layout::Axis;

model::ModelSpec spec() {
    return {.name = "llama3",
            .vocab_size = 640,
            .dim = 64,
            .num_layers = 4,
            .num_heads = 4,
            .num_kv_heads = 2,
            .head_dim = 16,
            .hidden_dim = 160};
}

train::TrainerOptions options() {
    return {.spec = spec(), .model = {.seq_len = 64, .microbatch_size = 2}, .num_microbatches = 4};
}

RankTrace trace(const layout::MeshShape& mesh, const train::TrainerOptions& how, int rank = 0) {
    const ops::OpsContext tensors;
    return trace_rank(how, mesh, rank, named_gpu("h100"));
}

constexpr layout::MeshShape kOne{{1, 1, 1, 1, 1}};

// 262,144 tokens over 8 ranks, as published for 8B: all scores of a layer would be 1 TB.
TEST(RankTrace, HoldsScoresWhereTheRunDoes) {
    using Rotation = parallel::ContextOptions::Rotation;
    train::TrainerOptions long_context{.spec = model::preset("llama3", "8B"),
                                       .model = {.seq_len = 262144},
                                       .recompute = model::RecomputeMode::Full};
    const layout::MeshShape mesh{{1, 1, 1, 8, 1}};
    for (const Rotation rotation : {Rotation::AllGather, Rotation::Ring}) {
        long_context.model.context.rotation = rotation;
        const RankTrace found = trace(mesh, long_context);
        EXPECT_EQ(found.score_bytes, 0);
        EXPECT_LT(found.peak.bytes, int64_t{45} << 30) << "of which weights and states are 17 GiB";
    }
    // A window that hides some keys of a chunk: no kernel computes this in the ring.
    long_context.spec.sliding_window = 50000;
    const double chunk = 262144.0 / 16;
    EXPECT_EQ(trace(mesh, long_context).score_bytes, 4 * 32 * chunk * chunk);
    // No kernel takes fp32: each chunk's queries meet all keys before its end.
    long_context.model.precision.compute = at::kFloat;
    long_context.model.context.rotation = Rotation::AllGather;
    EXPECT_EQ(trace(mesh, long_context).score_bytes, 4 * 32 * chunk * 262144);
}

/// Of a rank and a step. The formula's causal attention counts T / 2 keys for a token, a kernel (T + 1) / 2.
double model_flops(const train::TrainerOptions& how) {
    const auto tokens =
        static_cast<double>(how.model.seq_len * how.model.microbatch_size * how.num_microbatches);
    const auto one = model::flops_per_token(how.spec, how.model.seq_len);
    const double attention = one.causal - (2 * one.causal - one.noncausal);
    return tokens * (one.causal - attention + attention * 7 / 6 * (1 + 1.0 / how.model.seq_len));
}

TEST(RankTrace, HasTheFlopsOfTheModel) {
    // Norm weights have no products, but count as parameters: 9 norms of 64 in 200,000.
    EXPECT_NEAR(trace(kOne, options()).flops / model_flops(options()), 1, 0.005);
}

TEST(RankTrace, OfARankHasItsShareOfTheFlops) {
    const double all = trace(kOne, options()).flops;
    EXPECT_NEAR(trace({{1, 1, 1, 1, 2}}, options()).flops / all, 0.5, 1e-9);
    train::TrainerOptions pipelined = options();
    pipelined.stage_layers = {2, 2};
    const double first = trace({{2, 1, 1, 1, 1}}, pipelined, 0).flops,
                 second = trace({{2, 1, 1, 1, 1}}, pipelined, 1).flops;
    EXPECT_NEAR((first + second) / all, 1, 1e-9);
    EXPECT_LT(first, second) << "the head is on the last stage";
}

TEST(RankTrace, OfAContextAxisHasAllFlopsOnce) {
    using Rotation = parallel::ContextOptions::Rotation;
    for (const std::optional<int64_t> window : {std::optional<int64_t>(), std::optional<int64_t>(20)}) {
        train::TrainerOptions how = options();
        how.spec.sliding_window = window;
        const double all = trace(kOne, how).flops;
        for (const Rotation rotation : {Rotation::AllGather, Rotation::Ring}) {
            how.model.context.rotation = rotation;
            for (const int degree : {2, 4, 8}) {
                double sum = 0;
                for (int rank = 0; rank < degree; ++rank)
                    sum += trace({{1, 1, 1, degree, 1}}, how, rank).flops;
                EXPECT_NEAR(sum / all, 1, 1e-9) << degree << " ranks, ring: " << (rotation == Rotation::Ring);
            }
        }
    }
}

TEST(RankTrace, OfAPlanIsThatOfTheRankWithTheMostWork) {
    const ops::OpsContext tensors;
    config::JobConfig config;
    config.training.seq_len = 256;
    config.parallelism.context_parallel_degree = 4;
    config.parallelism.tensor_parallel_degree = 2;
    for (const auto& [family, balancer] : {std::pair("llama3", layout::ContextBalance::None),
                                           std::pair("mistral", layout::ContextBalance::HeadTail)}) {
        config.model.name = family;
        if (config.model.name == "mistral") {
            config.model.flavor = "7B";
            config.training.seq_len = 16384;  // four windows
        }
        config.parallelism.context_parallel_load_balancer = balancer;
        const Plan plan = make_plan(config, 8, named_gpu("h100"));
        train::TrainerOptions how =
            setup::trainer_options(config, setup::choose_model(config.model), plan.mesh);
        double most = 0, least = 1e30;
        for (int rank = 0; rank < 8; ++rank) {
            const double flops = trace_rank(how, plan.mesh, rank, plan.machine).flops;
            most = std::max(most, flops);
            least = std::min(least, flops);
        }
        EXPECT_NEAR(plan.ranks[0].trace.flops / most, 1, 1e-9) << family;
        EXPECT_LT(least, 0.99 * most) << family;
    }
}

/// The host takes most of a tiny step's time.
Machine machine_without_host() {
    Machine machine = named_gpu("h100");
    machine.host_seconds = 0;
    return machine;
}

/// 8 experts in every layer over all 4 ranks, or on each.
RankTrace trace_of_experts(double planned_imbalance, int num_layers = 4, int degree = 4) {
    const ops::OpsContext tensors;
    train::TrainerOptions how = options();
    how.spec.num_layers = num_layers;
    how.spec.experts = {.router = {.num_experts = 8, .top_k = 2}, .hidden_dim = 96};
    how.model.planned_imbalance = planned_imbalance;
    return trace_rank(how, layout::resolve({.shard = 4, .expert = degree, .num_experts = 8}, 4), 0,
                      machine_without_host());
}

double seconds_of_products(const RankTrace& trace) {
    return trace.compute_seconds.at(ops::WorkKind::Product);
}

// 256 slots of a rank's 128 tokens, and as many come to it in balance.
TEST(RankTrace, OfTheRankWithTheMostSlotsGrowsWithTheImbalance) {
    const RankTrace even = trace_of_experts(1), uneven = trace_of_experts(1.5);
    // Tapes have 128 rows more: the slots, gate and up, their product, the weight and the place of each.
    const int64_t grown = uneven.peak.bytes - even.peak.bytes,
                  grown_of_three = trace_of_experts(1.5, 3).peak.bytes - trace_of_experts(1, 3).peak.bytes;
    EXPECT_EQ(grown - grown_of_three, 128 * (2 * (64 + 2 * 96 + 96) + 4 + 4));
    EXPECT_EQ(uneven.peak.held.weights, even.peak.held.weights);
    EXPECT_EQ(uneven.peak.held.states, even.peak.held.states);
    EXPECT_GT(seconds_of_products(uneven), seconds_of_products(even));
    EXPECT_GT(simulate_step(std::span(&uneven, 1))[0].total, simulate_step(std::span(&even, 1))[0].total);
    ASSERT_EQ(uneven.launches.size(), even.launches.size());
    int num_exchanges = 0;
    for (size_t i = 0; i < even.launches.size(); ++i) {
        const comm::MovedBytes one = even.launches[i].moved, more = uneven.launches[i].moved;
        const bool is_exchange = even.launches[i].kind == comm::OpKind::AllToAll;
        num_exchanges += is_exchange;
        EXPECT_EQ(std::max(more.sent, more.received),
                  std::max(one.sent, one.received) * (is_exchange ? 3 : 2) / 2)
            << i;
    }
    EXPECT_EQ(num_exchanges, 4 * 4 * 4) << "there and back, in both passes, of 4 layers and 4 microbatches";
    EXPECT_EQ(trace_of_experts(100).peak.bytes, trace_of_experts(4).peak.bytes) << "all slots of all ranks";
    // On each rank all slots stay.
    const RankTrace alone = trace_of_experts(1, 4, 1), also = trace_of_experts(1.5, 4, 1);
    EXPECT_EQ(also.peak.bytes, alone.peak.bytes);
    EXPECT_EQ(seconds_of_products(also), seconds_of_products(alone));
}

TEST(RankTrace, OfAPlanStatesItsImbalance) {
    const ops::OpsContext tensors;
    config::JobConfig config;
    config.model.name = "qwen3_moe";
    config.training.seq_len = 256;
    const auto planned = [&](int degree) {
        config.parallelism.expert_parallel_degree = degree;
        return make_plan(config, 8, machine_without_host());
    };
    const Plan divided = planned(8), alone = planned(1);
    EXPECT_EQ(divided.planned_imbalance, 1.2);
    const char* const line = "the planned rank's experts get 1.2 times an equal share: moe.planned_imbalance";
    EXPECT_NE(plan_text(divided).find(line), std::string::npos) << plan_text(divided);
    EXPECT_EQ(plan_text(alone).find("moe."), std::string::npos);
    config.moe.planned_imbalance = 1;
    EXPECT_LT(planned(8).seconds, divided.seconds);
    EXPECT_EQ(planned(1).seconds, alone.seconds);
    config.compile.graphs = config::Switch::On;
    EXPECT_ERROR(planned(8), UserError, "compile.graphs = true: the model has experts");
}

TEST(RankTrace, ComputesAgainWhatRecomputationDrops) {
    train::TrainerOptions full = options();
    full.recompute = model::RecomputeMode::Full;
    const RankTrace kept = trace(kOne, options()), dropped = trace(kOne, full);
    EXPECT_GT(dropped.flops, 1.15 * kept.flops);
    EXPECT_LT(dropped.peak.other_bytes(), kept.peak.other_bytes());
    EXPECT_EQ(dropped.peak.held, kept.peak.held);
}

// All products cast their operands: in float8 they take the time of its peak, emulated that of bf16.
TEST(RankTrace, MultipliesInFloat8WhereTheGpuHasIt) {
    const ops::OpsContext tensors;
    train::TrainerOptions how = options();
    how.model.casts.recipe = ops::find_recipe("tensorwise");
    Machine machine = named_gpu("h100");
    machine.memory_speed = 1e20;
    machine.launch_seconds = 0;
    const auto seconds = [&](int capability) {
        machine.capability = capability;
        return trace_rank(how, kOne, /*rank=*/0, machine).compute_seconds.at(ops::WorkKind::Product);
    };
    EXPECT_NEAR(seconds(90) / seconds(80), machine.narrow_flops / machine.float8_flops, 1e-9);
    const double of_bf16 = seconds(80);
    how.model.casts.recipe = ops::find_recipe("tensorwise", ops::Accumulation::Float32);
    EXPECT_EQ(seconds(90), of_bf16) << "this recipe is emulated on every device";
}

TEST(RankTrace, NamesTheMomentOfThePeak) {
    const PeakMemory peak = trace({{1, 1, 2, 1, 1}}, options()).peak;
    EXPECT_GT(peak.held.gathered, 0);
    EXPECT_NE(peak.operation.find("of stage 0 unit"), std::string::npos) << peak.operation;
}

TEST(RankTrace, HasTheSharedMemoryOfProcessors) {
    const ops::OpsContext tensors;
    const auto shared = [](const layout::MeshShape& mesh, int64_t ring_bytes) {
        Machine machine = named_gpu("h100");
        machine.ring_bytes = ring_bytes;
        return trace_rank(options(), mesh, /*rank=*/0, machine).shared_bytes;
    };
    const layout::MeshShape copies{{1, 2, 1, 1, 1}}, tensor{{1, 1, 1, 1, 2}};
    constexpr int64_t kLarge = 1 << 30;
    EXPECT_EQ(shared(kOne, kLarge), 0);
    EXPECT_EQ(shared(copies, 0), 0);
    // Each copy publishes the gradients of all weights in fp32; a ring holds no more than its size.
    const int64_t gradients = trace(kOne, options()).peak.held.gradients;
    EXPECT_GT(shared(copies, kLarge), 0.9 * static_cast<double>(gradients));
    EXPECT_LT(shared(copies, kLarge), 1.1 * static_cast<double>(gradients));
    EXPECT_LT(shared(copies, 1 << 10), 3 << 10);
    // Of one microbatch's activations: fewer than of the weights.
    EXPECT_GT(shared(tensor, kLarge), 0);
    EXPECT_LT(shared(tensor, kLarge), gradients);
}

TEST(RankTrace, MapsTheSharedMemoryOfItsGroupsOnly) {
    const ops::OpsContext tensors;
    const auto share_of_mapped = [](const layout::MeshShape& mesh) {
        Machine machine = named_gpu("h100");
        machine.ring_bytes = 1 << 30;
        const RankTrace trace = trace_rank(options(), mesh, /*rank=*/0, machine);
        return static_cast<double>(trace.mapped_shared_bytes) / static_cast<double>(trace.shared_bytes);
    };
    EXPECT_NEAR(share_of_mapped({{1, 4, 1, 1, 1}}), 4, 1e-6);
    EXPECT_NEAR(share_of_mapped({{1, 2, 1, 1, 2}}), 2, 0.1) << "all ranks share some numbers";
}

// 64 GPUs on 8 nodes: rows travel to the experts of a node, whose weights are gathered between nodes.
TEST(RankTrace, DividesExpertsInsideANode) {
    train::TrainerOptions sparse = options();
    sparse.spec.experts = {.router = {.num_experts = 64, .top_k = 4}, .hidden_dim = 48};
    const auto seconds_of = [&](int degree, comm::OpKind kind) {
        const auto mesh = layout::resolve({.expert = degree, .num_experts = 64}, 64);
        std::map<std::string, double> seconds;  // by the name of a group
        for (const Launch& launch : trace(mesh, sparse).launches)
            if (launch.kind == kind) seconds[launch.group] += launch.seconds;
        return seconds;
    };
    const auto near = seconds_of(8, comm::OpKind::AllToAll), far = seconds_of(64, comm::OpKind::AllToAll);
    ASSERT_EQ(near.size(), 1);
    ASSERT_EQ(far.size(), 1);
    EXPECT_LT(near.at("dp_shard inner"), 0.5 * far.at("dp_shard"));
    const auto gathers = seconds_of(8, comm::OpKind::AllGather);
    EXPECT_GT(gathers.at("dp_shard outer"), 0) << "of experts";
    EXPECT_GT(gathers.at("dp_shard"), 0) << "of dense layers";
    EXPECT_FALSE(seconds_of(64, comm::OpKind::AllGather).contains("dp_shard outer"));
}

TEST(RankTrace, WaitsForEachLaunchOnce) {
    train::TrainerOptions pipelined = options();
    pipelined.stage_layers = {2, 2};
    for (const layout::MeshShape& mesh :
         {layout::MeshShape{{1, 1, 2, 1, 1}}, layout::MeshShape{{1, 2, 2, 1, 2}},
          layout::MeshShape{{1, 1, 1, 2, 1}}, layout::MeshShape{{2, 1, 2, 1, 2}}}) {
        SCOPED_TRACE(mesh.name());
        const bool has_stages = mesh.degree(Axis::Pipeline) > 1;
        std::vector<RankTrace> traces;
        for (int stage = 0; stage < mesh.degree(Axis::Pipeline); ++stage)
            traces.push_back(trace(mesh, has_stages ? pipelined : options(), mesh.rank({stage, 0, 0, 0, 0})));
        for (const RankTrace& rank : traces) {
            std::vector<int> waits(rank.launches.size());
            for (const Event& event : rank.events) {
                if (event.kind == Event::Kind::Wait) ++waits[event.launch];
            }
            EXPECT_EQ(waits, std::vector<int>(rank.launches.size(), 1));
        }
        for (const RankTime& time : simulate_step(traces)) EXPECT_GT(time.total, 0);
    }
}

}  // namespace
}  // namespace argosy::plan
