#include "plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "config/schema.h"
#include "expect_error.h"
#include "ops/ops_context.h"
#include "plan/report.h"

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
    Machine machine = *find_machine("h100");
    machine.ranks_per_node = 4;
    machine.reserved_bytes = 0;
    machine.memory_bytes = mebibytes * kMebibyte;
    return machine;
}

int64_t peak(const Candidate& candidate) { return candidate.plan.fullest().trace.peak.bytes; }

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

TEST(Search, RefusesRanksThatNoMeshCanUse) {
    const ops::OpsContext tensors;
    EXPECT_ERROR(search(given(), 4096, small_machine(1000)), UserError,
                 "no mesh of 4096 ranks can train this model");
}

TEST(Search, RoughPlansAreNearToFullOnes) {
    const ops::OpsContext tensors;
    config::JobConfig config = given();
    config.training.global_batch_size = 64;
    config.parallelism.pipeline_parallel_degree = 2;
    const Machine machine = small_machine(1000);
    const Plan full = make_plan(config, 2, machine), rough = make_rough_plan(config, 2, machine);
    EXPECT_NEAR(rough.seconds / full.seconds, 1, 0.1);
    EXPECT_EQ(rough.fullest().trace.peak.bytes, full.fullest().trace.peak.bytes);
}

}  // namespace
}  // namespace argosy::plan
