#include "plan/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "config/schema.h"
#include "expect_error.h"
#include "ops/ops_context.h"
#include "plan/gpus.h"
#include "plan/plan_text.h"
#include "plan/search_space.h"

namespace argosy::plan {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

config::JobConfig given() {
    config::JobConfig config;
    config.training.seq_len = 256;
    config.training.global_batch_size = 32;
    return config;
}

/// An H100 whose tensors can have `mebibytes`, in nodes of 4.
Machine small_machine(int64_t mebibytes) {
    Machine machine = named_gpu("h100");
    machine.ranks_per_node = 4;
    machine.reserved_bytes = 0;
    machine.collective_channels = machine.message_channels = 0;
    machine.memory_bytes = mebibytes * kMebibyte;
    return machine;
}

int64_t peak(const Candidate& candidate) { return candidate.plan.fullest().trace.peak.bytes; }

TEST(Search, DividesExperts) {
    const ops::OpsContext tensors;
    config::JobConfig sparse = given();
    sparse.model.name = "qwen3_moe";
    std::set<int> degrees;
    std::set<std::pair<int, int>> of_2x4;  // degrees and inner shards of tp 2 x dp_shard 4
    for (const Trial& trial : try_meshes(sparse, 8, small_machine(1000))) {
        const auto& mesh = trial.config.parallelism;
        if (!trial.plan) continue;
        degrees.insert(mesh.expert_parallel_degree);
        if (mesh.tensor_parallel_degree == 2 && mesh.data_parallel_shard_degree == 4)
            of_2x4.insert({mesh.expert_parallel_degree, trial.plan->mesh.inner_shards});
    }
    EXPECT_EQ(degrees, (std::set{1, 2, 4, 8}));
    EXPECT_EQ(of_2x4, (std::set<std::pair<int, int>>{{1, 1}, {2, 1}, {4, 2}, {8, 4}}));
}

TEST(Search, ListsTheFrontOfTimeAndMemory) {
    const ops::OpsContext tensors;
    const Machine machine = small_machine(100);
    const Search found = search(given(), 8, machine);
    ASSERT_GE(found.best.size(), 2);
    EXPECT_GT(found.num_planned, 20);
    for (size_t i = 0; i < found.best.size(); ++i) {
        const Candidate& candidate = found.best[i];
        EXPECT_LE(peak(candidate), machine.memory_bytes);
        EXPECT_EQ(candidate.plan.mesh.num_ranks(), 8);
        EXPECT_EQ(candidate.plan.tokens, 32 * 256) << "the same batch";
        if (i == 0) continue;
        EXPECT_GE(candidate.plan.seconds, found.best[i - 1].plan.seconds);
        EXPECT_LT(peak(candidate), peak(found.best[i - 1]));
    }
}

TEST(Search, NamesTheKeysOfItsPlans) {
    const ops::OpsContext tensors;
    const Machine machine = small_machine(100);
    for (const Candidate& candidate : search(given(), 8, machine).best) {
        config::JobConfig config = given();
        for (const auto& [key, value] : candidate.changes) {
            const config::Field& field = *config::find_field(key);
            std::string word = value;
            std::erase(word, '"');
            field.set(config, value_from_word(field.type, word));
        }
        const Plan plan = make_plan(config, 8, machine);
        EXPECT_EQ(plan.mesh.name(), candidate.plan.mesh.name());
        EXPECT_EQ(plan.seconds, candidate.plan.seconds);
        EXPECT_EQ(plan.fullest().trace.peak.bytes, peak(candidate));
    }
}

TEST(Search, WithLessMemoryFindsSmallerConfigurations) {
    const ops::OpsContext tensors;
    const Search much = search(given(), 4, small_machine(1000)),
                 little = search(given(), 4, small_machine(12));
    ASSERT_FALSE(much.best.empty());
    ASSERT_FALSE(little.best.empty());
    EXPECT_EQ(much.num_too_large, 0);
    EXPECT_GT(little.num_too_large, 0);
    EXPECT_LE(much.best[0].plan.seconds, little.best[0].plan.seconds);
}

TEST(Search, NamesTheSmallestIfNoneFits) {
    const ops::OpsContext tensors;
    const Search found = search(given(), 2, small_machine(1));
    EXPECT_TRUE(found.best.empty());
    ASSERT_EQ(found.nearest.size(), 1);
    EXPECT_EQ(found.num_too_large, found.num_planned);
    EXPECT_NE(search_text(found).find("NONE FITS: the smallest needs 0.0 GiB"), std::string::npos)
        << search_text(found);
}

std::optional<std::string> value_of(const Candidate& candidate, const std::string& key) {
    for (const auto& [changed, value] : candidate.changes) {
        if (changed == key) return value;
    }
    return std::nullopt;
}

TEST(Search, SaysWhetherNarrowerTypesWouldFit) {
    const ops::OpsContext tensors;
    Machine machine = small_machine(1);
    machine.memory_bytes = search(given(), 2, machine).nearest[0].plan.peak_bytes() - 1;
    const Search found = search(given(), 2, machine);
    EXPECT_TRUE(found.best.empty());
    ASSERT_FALSE(found.narrower.empty());
    EXPECT_EQ(value_of(found.narrower[0].candidate, "optimizer.state_dtype"), "\"bfloat16\"");
    EXPECT_EQ(value_of(found.narrower[0].candidate, "training.dtype"), std::nullopt);
    double before = std::numeric_limits<double>::infinity();
    for (const Narrower& types : found.narrower) {
        EXPECT_TRUE(types.candidate.plan.fits()) << types.meaning;
        EXPECT_LT(types.candidate.plan.seconds, before);
        before = types.candidate.plan.seconds;
    }
    const std::string text = search_text(found);
    for (const char* part :
         {"NONE FITS", "CHANGE THE NUMBERS", "A: optimizer states in bfloat16, rounded stochastically: fits",
          "# A is the given configuration with these keys:\n[optimizer]\nstate_dtype"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    machine.memory_bytes = kMebibyte;
    const Search none = search(given(), 2, machine);
    ASSERT_EQ(none.narrower.size(), 1) << "the narrowest";
    EXPECT_EQ(value_of(none.narrower[0].candidate, "training.dtype"), "\"bfloat16\"");
    EXPECT_NE(search_text(none).find("DOES NOT FIT"), std::string::npos);
}

TEST(Search, FindsNarrowerTypesThatMakeAStepFaster) {
    const ops::OpsContext tensors;
    // Of the configurations in order of memory, the first that is faster than all before it needs more memory
    // than the machine has.
    const std::vector<Candidate> front = search(given(), 2, small_machine(1000)).best;
    ASSERT_GE(front.size(), 2);
    Machine machine = small_machine(1000);
    machine.memory_bytes = front[0].plan.peak_bytes() - 1;
    const Search found = search(given(), 2, machine);
    ASSERT_FALSE(found.best.empty());
    ASSERT_FALSE(found.narrower.empty()) << search_text(found);
    EXPECT_LT(found.narrower[0].candidate.plan.seconds, found.best[0].plan.seconds);
    EXPECT_TRUE(found.narrower[0].candidate.plan.fits());
}

TEST(Search, NeverRanksNarrowerTypes) {
    const ops::OpsContext tensors;
    config::JobConfig wide = given();
    wide.training.mixed_precision_param = config::Precision::Float32;
    const Search found = search(wide, 2, small_machine(1000));
    ASSERT_FALSE(found.best.empty());
    const auto types = [](const config::JobConfig& config) {
        return std::tuple(config.training.dtype, config.training.mixed_precision_param,
                          config.training.gradient_accumulation_dtype, config.optimizer.state_dtype);
    };
    for (const Candidate& candidate : found.best) EXPECT_EQ(types(candidate.config), types(wide));
    ASSERT_EQ(found.narrower.size(), 1) << "with so much memory only the computation is faster";
    EXPECT_EQ(value_of(found.narrower[0].candidate, "training.mixed_precision_param"), "\"bfloat16\"");
    EXPECT_LT(found.narrower[0].candidate.plan.seconds, found.best[0].plan.seconds);
    const std::string text = search_text(found);
    EXPECT_LT(text.find("CHANGE THE NUMBERS"), text.find("A: computation in bfloat16: ")) << text;
    EXPECT_LT(text.find("% less time than 1"), text.find("# Number 1 is"))
        << "the keys are those of number 1";
    EXPECT_NE(text.find("links     in a node 360 GB/s"), std::string::npos) << text;
}

/// A machine on which the fastest mesh has a tensor axis: nothing costs time but products and links in a
/// node.
Machine machine_for_tensor_axes(double hop_seconds) {
    Machine machine = small_machine(1000);
    machine.memory_speed = 1e20;
    machine.launch_seconds = machine.host_seconds = 0;
    machine.in_node.usual = {8e12, hop_seconds, "a test"};
    return machine;
}

TEST(Search, SwitchesOverlapOnOnlyWhereItGains) {
    const ops::OpsContext tensors;
    config::JobConfig tensor = given();
    tensor.training.global_batch_size = 1;  // of one sequence: no other axis divides it
    tensor.training.seq_len = 2048;
    for (const auto value : {config::Switch::On, config::Switch::Off, config::Switch::Auto}) {
        tensor.parallelism.enable_async_tensor_parallel = value;
        const Search gains = search(tensor, 4, machine_for_tensor_axes(0)),
                     loses = search(tensor, 4, machine_for_tensor_axes(1e-3));
        const auto overlap = [](const Search& found) {
            return found.best[0].config.parallelism.enable_async_tensor_parallel;
        };
        ASSERT_EQ(gains.best[0].config.parallelism.tensor_parallel_degree, 4) << search_text(gains);
        EXPECT_EQ(overlap(gains), config::Switch::On);
        EXPECT_EQ(value_of(gains.best[0], "parallelism.enable_async_tensor_parallel"),
                  value == config::Switch::On ? std::nullopt : std::optional<std::string>("true"));
        EXPECT_NE(gains.reason.find("Async tensor parallelism is on: off, a step would take "),
                  std::string::npos)
            << gains.reason;
        ASSERT_EQ(loses.best[0].config.parallelism.tensor_parallel_degree, 4) << search_text(loses);
        EXPECT_EQ(overlap(loses), config::Switch::Off);
        EXPECT_EQ(value_of(loses.best[0], "parallelism.enable_async_tensor_parallel"),
                  value == config::Switch::Off ? std::nullopt : std::optional<std::string>("false"));
    }
}

TEST(Search, ListsFloat8OnlyWhereItGains) {
    const ops::OpsContext tensors;
    Machine machine = machine_for_tensor_axes(0);
    const auto casts_of = [&](const Search& found) {
        std::vector<std::string> names;
        for (const Narrower& one : found.narrower) {
            if (value_of(one.candidate, "model.converters")) names.push_back(one.meaning);
        }
        return names;
    };
    const Search gains = search(given(), 2, machine);
    EXPECT_EQ(casts_of(gains).size(), 4) << search_text(gains);
    const auto kept =
        std::ranges::find(gains.narrower, "products in float8, tensorwise, and weights kept in float8",
                          [](const Narrower& one) { return std::string(one.meaning); });
    ASSERT_NE(kept, gains.narrower.end()) << search_text(gains);
    EXPECT_EQ(value_of(kept->candidate, "quantize.linear.float8.enable_fsdp_float8_all_gather"), "true");
    const Candidate& first = gains.narrower.front().candidate;
    EXPECT_EQ(value_of(first, "model.converters"), "[\"quantize.linear.float8\"]");
    EXPECT_LT(first.plan.seconds, 0.99 * gains.best[0].plan.seconds);
    EXPECT_EQ(value_of(gains.best[0], "model.converters"), std::nullopt) << "it changes the numbers";
    EXPECT_NE(search_text(gains).find("% more than A: "), std::string::npos) << "why B loses to A";
    EXPECT_NE(search_text(gains).find("# A is the given configuration with these keys:\n"), std::string::npos)
        << search_text(gains);
    // Passes over memory that take long: the casts cost more than the products gain.
    machine.memory_speed = 1e11;
    const Search loses = search(given(), 2, machine);
    EXPECT_EQ(casts_of(loses), std::vector<std::string>{}) << search_text(loses);
    EXPECT_NE(loses.reason.find("products in float8, tensorwise: a step would take "), std::string::npos)
        << loses.reason;
    // A GPU without float8, and a run that casts already.
    machine = machine_for_tensor_axes(0);
    machine.float8_flops = 0;
    machine.capability = 80;
    const Search without = search(given(), 2, machine);
    EXPECT_EQ(casts_of(without), std::vector<std::string>{});
    EXPECT_EQ(without.reason.find("float8"), std::string::npos) << without.reason;
    config::JobConfig casts = given();
    casts.model.converters = {config::Converter::Float8};
    const Search given_casts = search(casts, 2, machine_for_tensor_axes(0));
    EXPECT_NE(given_casts.reason.find("products without casts: a step would take "), std::string::npos)
        << given_casts.reason;
}

TEST(Search, RefusesRanksThatNoMeshCanUse) {
    const ops::OpsContext tensors;
    EXPECT_ERROR(search(given(), 4096, small_machine(1000)), UserError,
                 "no mesh of 4096 ranks can train this model");
}

TEST(Search, RoughPlansAreNearToFullOnes) {
    using config::PipelineSchedule;
    const ops::OpsContext tensors;
    config::JobConfig config = given();
    config.model.flavor = "70B";
    config.training.global_batch_size = 64;
    const Machine machine = small_machine(1000);
    for (const int num_stages : {1, 2, 16}) {
        config.training.local_batch_size = num_stages == 1 ? 8 : 64;
        for (const PipelineSchedule schedule :
             {PipelineSchedule::OneForwardOneBackward, PipelineSchedule::InterleavedOneForwardOneBackward,
              PipelineSchedule::ZbvZeroBubble}) {
            config.parallelism.pipeline_parallel_degree = num_stages;
            config.parallelism.pipeline_parallel_schedule = schedule;
            const Plan full = make_plan(config, num_stages, machine),
                       rough = make_rough_plan(config, num_stages, machine);
            const auto where = fmt::format("{} stages, schedule {}", num_stages, static_cast<int>(schedule));
            EXPECT_NEAR(rough.seconds / full.seconds, 1, 0.1) << where;
            EXPECT_EQ(rough.fullest().trace.peak.bytes, full.fullest().trace.peak.bytes) << where;
        }
    }
}

}  // namespace
}  // namespace argosy::plan
