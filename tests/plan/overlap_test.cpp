// The table of tensor parallelism's collectives against formulas, and the choice of overlap on machines where
// it gains and where it does not.
#include "plan/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "ops/float8.h"
#include "ops/ops_context.h"
#include "plan/gpus.h"

namespace argosy::plan {
namespace {

using comm::OpKind;
using config::Switch;

constexpr int64_t kLayers = 2, kDim = 64, kTokens = 128, kMicrobatches = 3;

train::TrainerOptions trainer(bool overlaps) {
    return {.spec = {.name = "llama3",
                     .vocab_size = 640,
                     .dim = kDim,
                     .num_layers = kLayers,
                     .num_heads = 8,
                     .num_kv_heads = 4,
                     .head_dim = 8,
                     .hidden_dim = 160},
            .model = {.tensor = {.overlap_products = overlaps}, .seq_len = 64, .microbatch_size = 2},
            .num_microbatches = kMicrobatches};
}

RankPlan plan_of(const train::TrainerOptions& options, const layout::MeshShape& mesh,
                 const Machine& machine = named_gpu("h100")) {
    const ops::OpsContext tensors;
    RankPlan plan{.trace = trace_rank(options, mesh, /*rank=*/0, machine), .time = {}};
    plan.time = simulate_step({&plan.trace, 1})[0];
    plan.tensor_collectives = tensor_collectives(plan.trace, plan.time, mesh.degree(layout::Axis::Tensor));
    return plan;
}

std::vector<TensorCollective> table(bool overlaps, int degree) {
    const layout::MeshShape mesh{{1, 1, 1, 1, degree}};
    return plan_of(trainer(overlaps), mesh).tensor_collectives;
}

TensorCollective row(const std::vector<TensorCollective>& rows, const std::string& pass,
                     const std::string& work, OpKind kind) {
    const auto found = std::ranges::find_if(rows, [&](const TensorCollective& each) {
        return each.pass == pass && each.work == work && each.kind == kind;
    });
    EXPECT_NE(found, rows.end()) << pass << ", " << work << ", " << comm::kind_name(kind);
    return found == rows.end() ? TensorCollective{} : *found;
}

/// The collectives beside a product of a layer or of the head.
const std::tuple<const char*, const char*, OpKind> kBesideProducts[] = {
    {"forward", "wq, wk, wv", OpKind::AllGather}, {"forward", "wo", OpKind::ReduceScatter},
    {"forward", "w1, w3", OpKind::AllGather},     {"forward", "w2", OpKind::ReduceScatter},
    {"head", "output", OpKind::AllGather},        {"head", "output", OpKind::ReduceScatter},
    {"backward", "w2", OpKind::AllGather},        {"backward", "w1, w3", OpKind::ReduceScatter},
    {"backward", "wo", OpKind::AllGather},        {"backward", "wq, wk, wv", OpKind::ReduceScatter},
};

TEST(TensorCollectives, SumUpToTheBytesAndWaitsOfTheStep) {
    train::TrainerOptions rowwise = trainer(true);
    rowwise.model.casts.recipe = ops::find_recipe("rowwise");
    train::TrainerOptions tensorwise = trainer(false);
    tensorwise.model.casts.recipe = ops::find_recipe("tensorwise");
    for (const train::TrainerOptions& options : {trainer(false), trainer(true), rowwise, tensorwise}) {
        for (const layout::MeshShape& mesh :
             {layout::MeshShape{{1, 1, 1, 1, 2}}, layout::MeshShape{{1, 1, 1, 1, 4}},
              layout::MeshShape{{1, 2, 2, 1, 2}}, layout::MeshShape{{1, 1, 1, 2, 2}}}) {
            SCOPED_TRACE(mesh.name());
            const RankPlan plan = plan_of(options, mesh);
            std::map<std::string, comm::MovedBytes> moved;
            std::map<std::string, double> exposed;
            for (const TensorCollective& each : plan.tensor_collectives) {
                moved[each.group].sent += each.moved.sent;
                moved[each.group].received += each.moved.received;
                exposed[each.group] += each.exposed_seconds;
                EXPECT_FALSE(each.work.empty()) << each.group << " " << each.pass;
            }
            EXPECT_GT(moved["tp"].sent, 0);
            EXPECT_TRUE(moved.contains("world"));
            for (const auto& [group, bytes] : moved) {
                EXPECT_EQ(bytes, plan.trace.moved.at(group)) << group;
                EXPECT_NEAR(exposed[group],
                            plan.time.exposed.contains(group) ? plan.time.exposed.at(group) : 0, 1e-12)
                    << group;
            }
        }
    }
}

TEST(TensorCollectives, HaveTheirNumbersAndBytes) {
    for (const bool overlaps : {false, true}) {
        for (const int degree : {2, 4}) {
            const auto rows = table(overlaps, degree);
            for (const auto& [pass, work, kind] : kBesideProducts) {
                const TensorCollective found = row(rows, pass, work, kind);
                const int64_t times = kMicrobatches * (found.pass == "head" ? 1 : kLayers);
                EXPECT_EQ(found.moved.sent, times * kTokens * kDim * 2 * (degree - 1) / degree) << work;
                if (found.pass == "head") continue;  // in pieces, if it overlaps
                EXPECT_EQ(found.number, times) << work;
                EXPECT_EQ(found.in_parts, overlaps) << work;
            }
            EXPECT_EQ(row(rows, "forward", "tok_embeddings", OpKind::ReduceScatter).number, kMicrobatches);
        }
    }
}

TEST(TensorCollectives, SayWhetherTheyOverlapAndWhyNot) {
    for (const bool overlaps : {false, true}) {
        const auto rows = table(overlaps, 4);
        for (const auto& [pass, work, kind] : kBesideProducts) {
            const TensorCollective found = row(rows, pass, work, kind);
            EXPECT_EQ(found.why_not, overlaps ? "" : "enable_async_tensor_parallel is off") << pass << work;
            EXPECT_EQ(found.product_seconds > 0, overlaps) << pass << work;
        }
        EXPECT_EQ(row(rows, "forward", "tok_embeddings", OpKind::ReduceScatter).why_not,
                  "no product before it");
        EXPECT_EQ(row(rows, "weights", "tok_embeddings", OpKind::AllGather).why_not, "no product after it");
        EXPECT_EQ(row(rows, "head", "softmax", OpKind::AllReduce).why_not,
                  "the next operation needs all of it");
        EXPECT_EQ(row(rows, "other", "loss and norm", OpKind::AllReduce).group, "world");
        // The rows for the weights' gradients of the first products travel beside other products in any case.
        EXPECT_EQ(row(rows, "weights", "wq, wk, wv", OpKind::AllGather).why_not, "");
    }
    EXPECT_TRUE(table(true, 1).empty()) << "there is no tensor axis";
}

// A transfer between processors takes the time of the rank that waits for it, whatever runs before.
TEST(TensorCollectives, OfProcessorsDoNotOverlap) {
    Machine machine = named_gpu("h100");
    machine.is_gpu = false;
    for (const TensorCollective& each :
         plan_of(trainer(true), {{1, 1, 1, 1, 2}}, machine).tensor_collectives) {
        EXPECT_EQ(each.why_not, "processors move the data themselves");
        EXPECT_NEAR(each.exposed_seconds, each.seconds, 1e-12) << each.work;
    }
}

/// A machine with fast links, whose hops take `hop_seconds`.
Machine machine_with(double hop_seconds) {
    Machine machine = named_gpu("h100");
    machine.launch_seconds = 0;
    machine.in_node.usual = {2e12, hop_seconds, "a test"};
    return machine;
}

config::JobConfig tensor_config() {
    config::JobConfig config;
    config.training.seq_len = 2048;
    config.parallelism.tensor_parallel_degree = 4;
    config.parallelism.enable_async_tensor_parallel = Switch::Auto;
    return config;
}

TEST(ChooseOverlap, TakesWhatThePlanGainsBy) {
    const ops::OpsContext tensors;
    const OverlapChoice fast = choose_overlap(tensor_config(), 4, machine_with(0)),
                        slow = choose_overlap(tensor_config(), 4, machine_with(1e-3));
    EXPECT_EQ(fast.value, Switch::On);
    EXPECT_TRUE(fast.text.starts_with("async tensor parallelism on: the plan for h100 predicts that a step "))
        << fast.text;
    EXPECT_NE(fast.text.find("% less time with it"), std::string::npos) << fast.text;
    EXPECT_EQ(slow.value, Switch::Off);
    EXPECT_NE(slow.text.find("async tensor parallelism off: "), std::string::npos) << slow.text;
    Machine processor = machine_with(0);
    processor.is_gpu = false;
    const OverlapChoice off = choose_overlap(tensor_config(), 4, processor);
    EXPECT_EQ(off.value, Switch::Off);
    EXPECT_EQ(off.text, "async tensor parallelism off: processors move the data themselves");
}

TEST(ChooseOverlap, KnowsGpusByTheirDriversNames) {
    const std::pair<const char*, const char*> known[] = {{"NVIDIA H100 80GB HBM3", "h100"},
                                                         {"NVIDIA H200", "h200"},
                                                         {"NVIDIA A100-SXM4-80GB", "a100"},
                                                         {"NVIDIA B200", "b200"},
                                                         {"NVIDIA L40S", "l40s"},
                                                         {"NVIDIA A100-SXM4-40GB", "a100:40"},
                                                         {"NVIDIA GeForce RTX 4090", "rtx4090"}};
    for (const auto& [name, row] : known) {
        const auto machine = machine_of_gpu(name);
        ASSERT_TRUE(machine) << name;
        EXPECT_EQ(machine->name, row);
    }
    for (const char* name :
         {"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB", "NVIDIA GH200 480GB",
          "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GB200", "NVIDIA L40", "", "h100"})
        EXPECT_FALSE(machine_of_gpu(name)) << name;
}

TEST(ChooseOverlap, PutsTheChoiceInPlaceOfAuto) {
    const ops::OpsContext tensors;
    const ChosenConfig found = with_overlap_chosen(tensor_config(), 4, machine_with(0));
    EXPECT_EQ(found.config.parallelism.enable_async_tensor_parallel, Switch::On);
    EXPECT_NE(found.text, "");
    config::JobConfig set = tensor_config();
    set.parallelism.enable_async_tensor_parallel = Switch::Off;
    EXPECT_EQ(with_overlap_chosen(set, 4, machine_with(0)).config, set);
    EXPECT_EQ(with_overlap_chosen(set, 4, machine_with(0)).text, "") << "nothing is left to choose";
    config::JobConfig alone = tensor_config();
    alone.parallelism.tensor_parallel_degree = 1;
    EXPECT_EQ(with_overlap_chosen(alone, 4, machine_with(0)).text, "");
}

TEST(ChooseOverlap, PlanTextHasTheTable) {
    const ops::OpsContext tensors;
    const std::string text = tensor_text(make_plan(tensor_config(), 4, machine_with(0)));
    for (const char* part : {"tok_embeddings", "wq, wk, wv", "no: no product before it",
                             "no: enable_async_tensor_parallel is off"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace argosy::plan
