// The named run of Llama 3 405B on 512 ranks: construction and one step of a first, a middle and a last rank,
// without data, take little time and memory. The suite is a process of its own, so that its resident set is
// the dry run's.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "config/parse.h"
#include "setup/setup.h"
#include "train/record_step.h"

namespace argosy::testing {
namespace {

constexpr int kNumRanks = 512;
constexpr double kMaxSeconds = 60;
constexpr int64_t kMaxResidentBytes = int64_t{2} << 30;

int64_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
}

struct Dry405b : ::testing::Test {
    const config::JobConfig job =
        config::parse_command_line({"--config", ARGOSY_CONFIGS "/llama3_405b.toml"}).config;
    const model::ModelSpec spec = setup::choose_model(job.model);
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(job.parallelism), kNumRanks);
    const train::TrainerOptions options = setup::trainer_options(job, spec, mesh);

    /// Bytes of a message: a rank's share of the tokens of a microbatch, in bf16.
    int64_t activation_bytes() const { return options.microbatch_size * options.seq_len / 8 * spec.dim * 2; }
    /// Elements of a block on a rank of the tensor axis, before the cut over the shards. Norms are not cut.
    int64_t block_elements() const {
        const int64_t matrices = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim * spec.dim +
                                 3 * spec.dim * spec.hidden_dim;
        return matrices / 8 + 2 * spec.dim;
    }
};

TEST_F(Dry405b, RunsInBoundedTimeAndMemory) {
    ASSERT_EQ(mesh.name(), "pp 8 x dp_shard 8 x tp 8");
    const int64_t table = spec.vocab_size / 8 * spec.dim;
    const struct {
        const char* name;
        layout::Coordinates coordinates;
        int64_t num_neighbours, num_elements;  // on the pipeline; of the stage's weights, as block_elements()
    } ranks[] = {{"first", {0, 0, 0, 0, 0}, 1, 15 * block_elements() + table},
                 {"middle", {4, 0, 3, 0, 5}, 2, 16 * block_elements()},
                 {"last", {7, 0, 7, 0, 7}, 1, 15 * block_elements() + table + spec.dim}};
    const double start = seconds_now();
    for (const auto& [name, coordinates, num_neighbours, num_elements] : ranks) {
        SCOPED_TRACE(name);
        comm::Recording recording;
        record_step(options, mesh, mesh.rank(coordinates), recording);
        const auto bytes = recording.bytes_by_group();
        const int64_t messages = num_neighbours * options.num_microbatches * activation_bytes();
        EXPECT_EQ(bytes.at("pp"), (comm::MovedBytes{messages, messages}));
        const int64_t sharded = (2 + 4) * num_elements / 8 * 7;  // gathered in bf16, reduced in fp32
        EXPECT_EQ(bytes.at("dp_shard"), (comm::MovedBytes{sharded, sharded}));
        EXPECT_LT(recording.counts().size(), 100U) << "memory that grows with the number of submissions";
    }
    RecordProperty("seconds", std::to_string(seconds_now() - start));
    RecordProperty("peak_resident_bytes", std::to_string(peak_resident_bytes()));
    EXPECT_LT(seconds_now() - start, kMaxSeconds);
    EXPECT_LT(peak_resident_bytes(), kMaxResidentBytes);
}

}  // namespace
}  // namespace argosy::testing
