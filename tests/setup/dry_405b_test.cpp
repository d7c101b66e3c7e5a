// The named run of Llama 3 405B on 512 ranks, and on 2048 with a context axis of 4: construction and one step
// of a first, a middle and a last rank, without data, take little time and memory. The suite is a process of
// its own, so that its resident set is the dry run's.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "config/parse.h"
#include "ops/ops_context.h"
#include "setup/options.h"
#include "train/dry_step.h"

namespace argosy::testing {
namespace {

constexpr double kMaxSeconds = 60;
constexpr int64_t kMaxResidentBytes = int64_t{2} << 30;

int64_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
}

struct Dry405b : ::testing::TestWithParam<int> {
    const int context = GetParam();
    const config::JobConfig job =
        config::parse_command_line({"--config", ARGOSY_CONFIGS "/llama3_405b.toml",
                                    "--parallelism.context_parallel_degree", std::to_string(context)})
            .config;
    const model::ModelSpec spec = setup::choose_model(job.model);
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(job), 512 * context);
    const train::TrainerOptions options = setup::trainer_options(job, spec, mesh);

    /// Tokens of a microbatch on a rank of the context axis.
    int64_t num_tokens() const { return options.model.microbatch_size * options.model.seq_len / context; }
    /// Bytes of a message: a rank's share of the tokens of a microbatch, in bf16.
    int64_t activation_bytes() const { return num_tokens() / 8 * spec.dim * 2; }
    /// Elements of a block on a rank of the tensor axis, before the cut over the shards. Norms are not cut.
    int64_t block_elements() const {
        const int64_t matrices = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim * spec.dim +
                                 3 * spec.dim * spec.hidden_dim;
        return matrices / 8 + 2 * spec.dim;
    }
    /// Bytes that a block moves over the context axis in a microbatch: the keys and values of the other ranks
    /// in bf16, in forward, recompute and backward, and the sums of their gradients in fp32.
    int64_t block_context_bytes() const {
        const int64_t key_value_columns = 2 * spec.num_kv_heads / 8 * spec.head_dim;
        return (context - 1) * num_tokens() * key_value_columns * (3 * 2 + 4);
    }
};

TEST_P(Dry405b, RunsInBoundedTimeAndMemory) {
    ASSERT_EQ(mesh.name(), context == 1 ? "pp 8 x dp_shard 8 x tp 8" : "pp 8 x dp_shard 8 x cp 4 x tp 8");
    const int64_t table = spec.vocab_size / 8 * spec.dim;
    const int last = context - 1;
    const struct {
        const char* name;
        layout::Coordinates coordinates;
        int64_t num_neighbours, num_blocks;  // on the pipeline; of the stage
        int64_t num_elements;                // of the stage's other weights, as block_elements()
    } ranks[] = {{"first", {0, 0, 0, 0, 0}, 1, 15, table},
                 {"middle", {4, 0, 3, last / 2, 5}, 2, 16, 0},
                 {"last", {7, 0, 7, last, 7}, 1, 15, table + spec.dim}};
    const ops::OpsContext tensors;
    const double start = seconds_now();
    for (const auto& [name, coordinates, num_neighbours, num_blocks, num_elements] : ranks) {
        SCOPED_TRACE(name);
        comm::Recording recording;
        train::record_step(options, mesh, mesh.rank(coordinates), recording);
        const auto bytes = recording.bytes_by_group();
        const int64_t messages = num_neighbours * options.num_microbatches * activation_bytes();
        EXPECT_EQ(bytes.at("pp"), (comm::MovedBytes{messages, messages}));
        const int64_t num_shards = 8 * context, num_weights = num_blocks * block_elements() + num_elements;
        const int64_t sharded = (2 + 4) * num_weights / num_shards * (num_shards - 1);  // bf16, fp32
        const char* shards = context == 1 ? "dp_shard" : "dp_shard x cp";
        EXPECT_EQ(bytes.at(shards), (comm::MovedBytes{sharded, sharded}));
        if (context > 1) {
            const int64_t keys = options.num_microbatches * num_blocks * block_context_bytes();
            EXPECT_EQ(bytes.at("cp"), (comm::MovedBytes{keys, keys}));
        }
        EXPECT_LT(recording.counts().size(), 100U) << "memory that grows with the number of submissions";
    }
    RecordProperty("seconds", std::to_string(seconds_now() - start));
    RecordProperty("peak_resident_bytes", std::to_string(peak_resident_bytes()));
    EXPECT_LT(seconds_now() - start, kMaxSeconds);
    EXPECT_LT(peak_resident_bytes(), kMaxResidentBytes);
}

INSTANTIATE_TEST_SUITE_P(ContextDegrees, Dry405b, ::testing::Values(1, 4));

}  // namespace
}  // namespace argosy::testing
