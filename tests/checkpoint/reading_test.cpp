#include <gtest/gtest.h>

#include "base/error.h"
#include "base/raw_file.h"
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

/// The bytes of all files that the search for faults reads.
int64_t bytes_to_verify(const Checkpoint& checkpoint) {
    const int64_t before = RawFile::num_bytes_moved();
    EXPECT_EQ(checkpoint.faults(), std::vector<std::string>());
    return RawFile::num_bytes_moved() - before;
}

TEST(Reading, VerifiesEachSlabOnce) {
    const ScratchFolder folder;
    Sample sample;
    const std::filesystem::path step = write_halves(folder, sample, 1000, 256);
    const int64_t num_bytes = sample.tensors[0].num_bytes();
    EXPECT_GT(bytes_to_verify(Checkpoint(step)), num_bytes);
    const Checkpoint half(step), all(step), parts(step);
    fetched(half, sample, {{0, 0}, {500, 256}});
    EXPECT_GT(bytes_to_verify(half), num_bytes / 2);
    EXPECT_LT(bytes_to_verify(half), num_bytes);
    fetched(all, sample, {{0, 0}, {1000, 256}});
    EXPECT_LT(bytes_to_verify(all), num_bytes / 4);
    // A slab that was read in part, or with other rows in memory between its own, is not verified by that.
    fetched(parts, sample, {{0, 0}, {499, 256}});
    fetched(parts, sample, {{500, 0}, {500, 255}});
    EXPECT_GT(bytes_to_verify(parts), num_bytes);
}

TEST(Reading, OfAStepWhoseManifestAnotherRankHasReadOpensTheShardsAlone) {
    const ScratchFolder folder;
    Sample sample;
    const std::filesystem::path step = write_halves(folder, sample, 100, 64);
    const std::string manifest = to_json(Checkpoint(step).manifest());
    std::filesystem::rename(step / kManifestName, folder / "manifest");
    const Checkpoint known(step, manifest);
    EXPECT_EQ(fetched(known, sample, {{0, 0}, {100, 64}}), 100 * 64 * 4);
    EXPECT_EQ(known.faults(1, 2), std::vector<std::string>());
    std::filesystem::rename(folder / "manifest", step / kManifestName);
    EXPECT_EQ(known.faults(), std::vector<std::string>());
    EXPECT_EQ(known.manifest(), Checkpoint(step).manifest());
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
