#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

constexpr auto kF32 = ElementType::Float32;

/// One tensor `rows` x `columns`, in halves of its rows on two writers.
std::filesystem::path write_halves(const ScratchFolder& folder, Sample& sample, int64_t rows,
                                   int64_t columns) {
    Random random(5);
    sample.add(random, {.name = "w", .type = kF32, .shape = {rows, columns}});
    const Hash nonce{1, 2};
    const SavePlan plan{.grid = {2}, .tensors = {{sample.tensors[0], {{.parts = 2}}}}};
    write_shards(random, start_step(folder / "run", 7, 2), sample, nonce, plan);
    commit_step(folder / "run", sample_description(), nonce, plan, {});
    return step_path(folder / "run", 7);
}

/// Reads the slab, compares it, and returns the bytes that were fetched for it.
int64_t fetched(const Checkpoint& checkpoint, const Sample& sample, const layout::Slab& slab) {
    const int64_t before = checkpoint.bytes_read();
    EXPECT_EQ(read(checkpoint, sample.tensors[0], slab), bytes_of_slab(sample, sample.tensors[0], slab));
    return checkpoint.bytes_read() - before;
}

TEST(Reading, FetchesOnlyTheRowsThatAreWanted) {
    const ScratchFolder folder;
    Sample sample;
    const Checkpoint checkpoint(write_halves(folder, sample, 100, 64));
    EXPECT_EQ(checkpoint.bytes_read(), 0);
    EXPECT_EQ(fetched(checkpoint, sample, {{3, 0}, {5, 64}}), 5 * 64 * 4);
    EXPECT_EQ(fetched(checkpoint, sample, {{45, 0}, {10, 64}}), 10 * 64 * 4);
    EXPECT_EQ(fetched(checkpoint, sample, {{45, 0}, {0, 64}}), 0);
    EXPECT_EQ(fetched(checkpoint, sample, {{0, 0}, {100, 64}}), 100 * 64 * 4);
}

TEST(Reading, FetchesOnlyTheColumnsThatAreWantedWhereTheyLiePagesApart) {
    const ScratchFolder folder;
    Sample sample;
    const Checkpoint checkpoint(write_halves(folder, sample, 20, 4096));
    EXPECT_EQ(fetched(checkpoint, sample, {{0, 512}, {20, 512}}), 20 * 512 * 4);
    EXPECT_EQ(fetched(checkpoint, sample, {{0, 7}, {20, 1}}), 20 * 4);
}

TEST(Reading, FetchesNearColumnsAtOnce) {
    const ScratchFolder folder;
    Sample sample;
    const Checkpoint checkpoint(write_halves(folder, sample, 20000, 32));
    EXPECT_LE(fetched(checkpoint, sample, {{0, 3}, {20000, 2}}), 20000 * 32 * 4);
    EXPECT_GE(fetched(checkpoint, sample, {{0, 0}, {20000, 31}}), 20000 * 31 * 4);
}

TEST(Reading, OpensTheShardsAloneThatHoldWhatIsWanted) {
    const ScratchFolder folder;
    Sample sample;
    const std::filesystem::path step = write_halves(folder, sample, 100, 64);
    std::filesystem::remove(step / shard_name(1, 2));
    const Checkpoint checkpoint(step);
    EXPECT_EQ(fetched(checkpoint, sample, {{0, 0}, {50, 64}}), 50 * 64 * 4);
    std::vector<std::byte> out(51 * 64 * 4);
    EXPECT_ERROR(checkpoint.read(sample.tensors[0], {{0, 0}, {51, 64}}, out), UserError,
                 "shard-00001-of-00002.h5", "No such file");
}

TEST(Reading, ComparesASlabThatItReadsWholeWithItsCheck) {
    const ScratchFolder folder;
    Sample sample;
    const std::filesystem::path step = write_halves(folder, sample, 100, 64);
    const StoredSlab slab = Checkpoint(step).slabs(sample.tensors[0])[1];
    const std::filesystem::path shard = step / shard_name(1, 2);
    std::string bytes = read_file(shard);
    bytes[slab.at + 1000] ^= 4;
    write_file(shard, bytes);
    const Checkpoint checkpoint(step);
    std::vector<std::byte> out(100 * 64 * 4);
    EXPECT_ERROR(checkpoint.read(sample.tensors[0], layout::whole(sample.tensors[0].shape), out), UserError,
                 "shard-00001-of-00002", "tensor 'w'", "[50, 0]", slab.hash.hex());
}

}  // namespace
}  // namespace argosy::checkpoint
