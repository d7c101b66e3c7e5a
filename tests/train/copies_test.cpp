// Ranks that hold copies of the same elements of a parameter hold the same bits after any number of steps: a
// tied table on the first and the last pipeline stage, norms and shared key/value heads over the tensor axis,
// and everything over replicas. Two replicas would prove nothing, because a sum of two is the same in either
// order.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "comm/backends.h"
#include "comm/values.h"
#include "gpu/device.h"
#include "ops/ops_context.h"
#include "support/communicator_double.h"
#include "support/world.h"
#include "train/muon.h"
#include "train/shared_muon.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using comm::OpKind;

// Sums in another order differ in some element of the first step already; later steps show that copies stay
// equal.
constexpr int kNumSteps = 6;

/// All-reduces by adding the members' parts in the order of their ranks, but beginning with member `begin`.
void sum_from(comm::Communicator& group, const comm::Op& op, int begin) {
    const at::Tensor parts = at::empty({group.size(), op.in.numel()}, op.in.options());
    group.run({OpKind::AllGather, parts, op.in.view({1, -1})});
    const at::Tensor sum = parts[begin].clone();
    for (int i = 1; i < group.size(); ++i) sum.add_(parts[(begin + i) % group.size()]);
    op.out.copy_(sum.view_as(op.out));
}

/// A backend whose groups add in different orders, as MPI and NCCL may: they choose the order of a sum for
/// each group, from its nodes and links. For CommunicatorDouble.
struct SumsInDifferentOrders {
    std::map<const comm::Communicator*, int> begins = {};  // by group: the member whose part comes first

    comm::Pending operator()(comm::Communicator& group, std::span<const comm::Op> ops) {
        const auto [begin, is_new] = begins.try_emplace(&group);
        if (is_new) {
            const int first_member = comm::broadcast(group, world().rank());
            begin->second = std::popcount(static_cast<unsigned>(first_member)) % group.size();
        }
        std::vector<comm::Op> others;
        for (const comm::Op& op : ops) {
            if (op.kind == OpKind::AllReduce && op.reduction == comm::Reduction::Sum) {
                sum_from(group, op, begin->second);
            } else {
                others.push_back(op);
            }
        }
        return group.submit(others);
    }
};

struct Case {
    std::string family;  // qwen2: tied, biases of keys and values; qwen3: tied, QK-norm
    Layout layout;
};

/// With 3 and 4 replicas.
std::vector<Case> cases() {
    switch (world().size()) {
        case 6:
            return {{"qwen2", {"pp2_ddp3", {.pipeline = 2, .replicate = 3}, {3, 2}}},
                    {"qwen3", {"ddp3_tp2", {.replicate = 3, .tensor = 2}}}};
        case 8:
            return {{"qwen2", {"pp2_ddp4", {.pipeline = 2, .replicate = 4}, {3, 2}}},
                    {"qwen3", {"ddp4_tp2", {.replicate = 4, .tensor = 2}}}};
        default:
            return {{"qwen2", {"pp2_hsdp3x2", {.pipeline = 2, .replicate = 3, .shard = 2}, {3, 2}}},
                    {"qwen3", {"hsdp3x2_tp2", {.replicate = 3, .shard = 2, .tensor = 2}}},
                    {"qwen2", {"ddp3_tp4", {.replicate = 3, .tensor = 4}}},
                    {"qwen3", {"pp2_ddp3_tp2", {.pipeline = 2, .replicate = 3, .tensor = 2}, {3, 2}}}};
    }
}

struct Mode {
    const char* name;
    parallel::Precision precision;
    int num_steps = kNumSteps / 3;
    std::vector<train::OptimizerChoice> optimizers = {};
    bool widened = false;
};

std::vector<Mode> modes() {
    return {{"", {at::kFloat, at::kFloat, at::kFloat}, kNumSteps},
            {", gradients in bf16", {at::kFloat, at::kFloat, at::kFloat, /*bf16_gradients=*/true}},
            {", Muon, computes in bf16",
             {at::kFloat, at::kBFloat16, at::kFloat},
             kNumSteps / 3,
             {train::muon({})}},
            {", Muon, all in bf16",
             {at::kBFloat16, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true},
             kNumSteps / 3,
             {train::muon({.state = at::kBFloat16})}},
            {", Muon, tensor ranks share matrices",
             {at::kFloat, at::kBFloat16, at::kFloat},
             kNumSteps / 3,
             {shared_muon()},
             /*widened=*/true}};
}

/// COLLECTIVE: compares what this rank holds of each parameter with the copy of the rank that owns it.
void expect_copies_of_the_owner(TinyRun& run) {
    const auto& parameters = run.trainer().model().parameters();
    const NamedTensors weights = run.weights(), states = run.states();
    const auto expect_copy = [&](size_t i, const at::Tensor& own, const at::Tensor& whole, const char* what) {
        const parallel::ShardedParameter& parameter = *parameters[i];
        const at::Tensor expected = slab_in(whole, parameter.slab());
        const double difference =
            (parameter.own_rows(own).to(at::kDouble) - expected).abs().sum().item<double>();
        EXPECT_EQ(difference, 0) << what << " of " << parameter.spec().name;
    };
    const auto name_of = [&](size_t i) { return parameters[i]->spec().name; };
    for (size_t i = 0; i < parameters.size(); ++i) {
        expect_copy(i, parameters[i]->master(), weights.at(name_of(i)), "master");
        const at::Tensor& compute = parameters[i]->compute();
        const at::Tensor rounded = parameters[i]->master().to(compute.scalar_type());
        EXPECT_EQ((compute - rounded).abs().sum().item<double>(), 0) << "compute of " << name_of(i);
    }
    for (const auto& [name, i, tensor] : run.trainer().step().states())
        expect_copy(i, tensor, states.at(name + "/" + name_of(i)), name.c_str());
}

/// So low that it acts on heads whose scores are small, of models without QK-norm.
std::optional<double> qk_clip_of(const std::string& family) {
    return family == "qwen2" ? std::optional(0.05) : std::nullopt;
}

void expect_equal_copies(comm::Communicator& ranks) {
    for (const Case& each : cases()) {
        for (const Mode& mode : modes()) {
            SCOPED_TRACE(each.layout.name + mode.name);
            TinyRun run(
                {.family = each.family,
                 .layout = each.layout,
                 .precision = mode.precision,
                 .optimizers = mode.optimizers,
                 .qk_clip = qk_clip_of(each.family),
                 .spec = mode.widened ? std::optional(widened(each.family, /*dim=*/15)) : std::nullopt},
                ranks);
            const NamedTensors initial = run.weights();
            for (int step = 0; step < mode.num_steps; ++step) run.train(step);
            EXPECT_GT(largest_difference(run.weights(), initial).relative, 1e-3);
            expect_copies_of_the_owner(run);
        }
    }
}

class Copies : public ::testing::TestWithParam<comm::Backend> {};

TEST_P(Copies, AreEqualBitForBitAfterTraining) {
    const ops::OpsContext tensors(ops::Path::Plain);
    const auto ranks = comm::all_ranks(GetParam(), "world", {.timeout_seconds = kTimeoutSeconds});
    expect_equal_copies(*ranks);
}

std::vector<comm::Backend> backends() {
    if (nccl::version() > 0) return {comm::Backend::Nccl};
    return {comm::Backend::Mpi, comm::Backend::SharedMemory};
}

INSTANTIATE_TEST_SUITE_P(Backends, Copies, ::testing::ValuesIn(backends()), comm::name_of_backend);

TEST(CopiesInAnyOrder, AreEqualWhereGroupsAddInDifferentOrders) {
    const ops::OpsContext tensors(ops::Path::Plain);
    CommunicatorDouble ranks(world(), SumsInDifferentOrders());
    expect_equal_copies(ranks);
}

}  // namespace
}  // namespace argosy::testing
