// Traces whose operations of layers are repeated from records, against traces that run every operation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/ops_context.h"
#include "plan/gpus.h"
#include "plan/rank_trace.h"
#include "setup/converters.h"
#include "setup/options.h"

namespace argosy::plan {
namespace {

using config::JobConfig;
using config::PipelineSchedule;
using config::Precision;
using config::RecomputeMode;
using config::Switch;

void expect_same(const Launch& left, const Launch& right, size_t number) {
    EXPECT_EQ(left.group, right.group) << number;
    EXPECT_EQ(left.channel, right.channel) << number;
    EXPECT_EQ(left.is_beside, right.is_beside) << number;
    EXPECT_EQ(left.seconds, right.seconds) << number;
    EXPECT_EQ(left.in_update, right.in_update) << number;
    EXPECT_EQ(left.held, right.held) << number;
    EXPECT_EQ(left.send_to, right.send_to) << number;
    EXPECT_EQ(left.receive_from, right.receive_from) << number;
    EXPECT_STREQ(left.pass, right.pass) << number;
    EXPECT_EQ(left.kind, right.kind) << number;
    EXPECT_STREQ(left.purpose.work, right.purpose.work) << number;
    EXPECT_EQ(left.moved, right.moved) << number;
}

void expect_same(const Event& left, const Event& right, size_t number) {
    EXPECT_EQ(left.kind, right.kind) << number;
    EXPECT_EQ(left.seconds, right.seconds) << number;
    EXPECT_EQ(left.product_seconds, right.product_seconds) << number;
    EXPECT_EQ(left.dense_seconds, right.dense_seconds) << number;
    EXPECT_EQ(left.host_seconds, right.host_seconds) << number;
    EXPECT_EQ(left.is_optimizer, right.is_optimizer) << number;
    EXPECT_EQ(left.launch, right.launch) << number;
}

void expect_same(const RankTrace& left, const RankTrace& right) {
    EXPECT_EQ(left.peak.bytes, right.peak.bytes);
    EXPECT_EQ(left.peak.held, right.peak.held);
    EXPECT_EQ(left.peak.operation, right.peak.operation);
    EXPECT_EQ(left.compute_seconds, right.compute_seconds);
    EXPECT_EQ(left.flops, right.flops);
    EXPECT_EQ(left.score_bytes, right.score_bytes);
    EXPECT_EQ(left.moved, right.moved);
    EXPECT_EQ(left.shared_bytes, right.shared_bytes);
    EXPECT_EQ(left.mapped_shared_bytes, right.mapped_shared_bytes);
    EXPECT_EQ(left.connections, right.connections);
    EXPECT_EQ(left.connection_bytes, right.connection_bytes);
    EXPECT_EQ(left.peer_bytes, right.peer_bytes);
    ASSERT_EQ(left.launches.size(), right.launches.size());
    ASSERT_EQ(left.events.size(), right.events.size());
    for (size_t i = 0; i < left.launches.size(); ++i) expect_same(left.launches[i], right.launches[i], i);
    for (size_t i = 0; i < left.events.size(); ++i) expect_same(left.events[i], right.events[i], i);
}

class Draws {
  public:
    explicit Draws(int seed) : random_(seed) {}
    template <class Value>
    Value one_of(std::initializer_list<Value> values) {
        return values.begin()[random_() % values.size()];
    }

    JobConfig config() {
        JobConfig drawn;
        drawn.model.name = one_of<std::string>({"llama3", "qwen3_moe"});
        drawn.model.flavor = "debugmodel";
        drawn.training.seq_len = one_of({64, 256});
        drawn.training.global_batch_size = 32;
        drawn.training.local_batch_size = one_of({1, 2, 4, 8});
        drawn.training.dtype = one_of({Precision::Float32, Precision::BFloat16});
        drawn.training.gradient_accumulation_dtype = one_of({Precision::Float32, Precision::BFloat16});
        drawn.activation_checkpoint.mode =
            one_of({RecomputeMode::None, RecomputeMode::Selective, RecomputeMode::Full});
        if (drawn.model.name == "llama3" && one_of({true, false})) {
            drawn.model.converters = {config::Converter::Float8};
            drawn.float8.recipe_name =
                one_of({config::Float8Recipe::Tensorwise, config::Float8Recipe::Rowwise});
        }
        auto& mesh = drawn.parallelism;
        mesh.tensor_parallel_degree = one_of({1, 1, 2});
        mesh.context_parallel_degree = one_of({1, 1, 2});
        mesh.pipeline_parallel_degree = one_of({1, 2, 4});
        mesh.data_parallel_replicate_degree = one_of({1, 2});
        mesh.expert_parallel_degree = drawn.model.name == "llama3" ? 1 : one_of({1, 2, 4});
        mesh.enable_async_tensor_parallel = one_of({Switch::On, Switch::Off});
        mesh.fsdp_reshard_after_forward =
            one_of({config::ReshardAfterForward::Always, config::ReshardAfterForward::Never});
        mesh.pipeline_parallel_schedule =
            one_of({PipelineSchedule::OneForwardOneBackward, PipelineSchedule::ZbvZeroBubble,
                    PipelineSchedule::InterleavedOneForwardOneBackward});
        if (mesh.pipeline_parallel_degree > 1) drawn.training.local_batch_size = 8;
        return drawn;
    }

  private:
    std::mt19937 random_;
};

/// The options of a run on 8 ranks; none for a configuration that it refuses.
std::optional<std::pair<train::TrainerOptions, layout::MeshShape>> options_of(const JobConfig& config) {
    try {
        const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config), 8);
        return std::pair(setup::trainer_options(config, setup::choose_model(config.model), mesh), mesh);
    } catch (const UserError&) {
        return std::nullopt;
    }
}

TEST(Repeats, GiveTheSameTrace) {
    const ops::OpsContext tensors;
    Draws draws(7);
    int num_compared = 0;
    for (int draw = 0; num_compared < 40; ++draw) {
        ASSERT_LT(draw, 400) << "too many draws are refused";
        const JobConfig config = draws.config();
        const auto options = options_of(config);
        if (!options) continue;
        Machine machine = named_gpu("h100");
        machine.ring_bytes = 1 << 30;
        const auto& [how, mesh] = *options;
        SCOPED_TRACE(fmt::format("draw {}: {} {}", draw, *config.model.name, mesh.name()));
        const auto trace = [&](int rank, Repeats repeats) -> std::optional<RankTrace> {
            try {
                return trace_rank(how, mesh, rank, machine, repeats);
            } catch (const UserError&) {
                return std::nullopt;
            }
        };
        for (const int rank : mesh.group(0, layout::Axis::Pipeline)) {
            const auto run = trace(rank, Repeats::Run), repeated = trace(rank, Repeats::FromRecords);
            ASSERT_EQ(run.has_value(), repeated.has_value());
            if (!run) break;
            num_compared += rank == 0;
            expect_same(*run, *repeated);
            EXPECT_EQ(run->num_records, 0);
        }
        if (HasFailure()) return;
    }
}

/// The layers differ: a dense one and sparse ones, windows and none, a tied table.
TEST(Repeats, GiveTheSameTraceOfLayersThatDiffer) {
    const ops::OpsContext tensors;
    for (const auto& [name, flavor] : {std::pair("glm4_moe", "106B-A12B"), std::pair("gemma3", "1B"),
                                       std::pair("olmo3", "7B"), std::pair("llama3", "1B")}) {
        for (const int num_stages : {1, 2}) {
            SCOPED_TRACE(fmt::format("{} on {} stages", name, num_stages));
            train::TrainerOptions how{.spec = model::preset(name, flavor),
                                      .model = {.seq_len = 4096},
                                      .recompute = model::RecomputeMode::Selective,
                                      .num_microbatches = 3};
            how.spec.num_layers = 12;
            if (num_stages > 1) how.stage_layers = {5, 7};
            const layout::MeshShape mesh{{num_stages, 1, 4, 1, 1}};
            for (const int rank : mesh.group(0, layout::Axis::Pipeline)) {
                const auto trace = [&](Repeats repeats) {
                    return trace_rank(how, mesh, rank, named_gpu("h100"), repeats);
                };
                expect_same(trace(Repeats::Run), trace(Repeats::FromRecords));
            }
        }
    }
}

/// A schedule that splits backward keeps tensors to which neighbours write, in every layer and microbatch.
TEST(Repeats, KeepWhatNeighboursWriteTo) {
    const ops::OpsContext tensors;
    JobConfig config;
    config.model.flavor = "debugmodel";
    config.training.seq_len = 65536;
    config.training.local_batch_size = 8;
    config.training.global_batch_size = 16;
    config.parallelism.tensor_parallel_degree = config.parallelism.pipeline_parallel_degree = 2;
    config.parallelism.enable_async_tensor_parallel = Switch::On;
    Machine machine = named_gpu("h100");
    machine.peer_copies = true;
    const auto bytes = [&](PipelineSchedule schedule, Repeats repeats) {
        config.parallelism.pipeline_parallel_schedule = schedule;
        const auto options = options_of(config);
        ARGOSY_CHECK(options, "the configuration is refused");
        return trace_rank(options->first, options->second, /*rank=*/0, machine, repeats).peer_bytes;
    };
    const int64_t split = bytes(PipelineSchedule::ZbvZeroBubble, Repeats::Run);
    EXPECT_EQ(bytes(PipelineSchedule::ZbvZeroBubble, Repeats::FromRecords), split);
    EXPECT_GT(split, bytes(PipelineSchedule::OneForwardOneBackward, Repeats::Run));
}

/// An operation runs once for all layers and microbatches. A search is fast because of that.
TEST(Repeats, RunFewOperations) {
    const ops::OpsContext tensors;
    train::TrainerOptions how{.spec = model::preset("qwen3_moe", "30B-A3B"),
                              .model = {.seq_len = 4096},
                              .stage_layers = {12, 12, 12, 12},
                              .recompute = model::RecomputeMode::Full,
                              .num_microbatches = 16};
    const layout::MeshShape mesh{{4, 1, 2, 1, 1}};
    std::vector<int64_t> numbers;
    for (const int rank : mesh.group(0, layout::Axis::Pipeline))
        numbers.push_back(trace_rank(how, mesh, rank, named_gpu("h100")).num_records);
    // Four passes of a layer, and its weights' gradients again where they are added; of the embedding
    // likewise; the loss of the first microbatch and of the others.
    EXPECT_EQ(numbers, (std::vector<int64_t>{10, 5, 5, 7}));
}

}  // namespace
}  // namespace argosy::plan
