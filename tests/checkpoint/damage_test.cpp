// Whatever happens to a file of a checkpoint is found by opening it and asking for its faults, and named.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/output_file.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

/// What opening and checking says; a mistake while opening is one fault.
std::vector<std::string> all_faults(const std::filesystem::path& path) {
    try {
        return Checkpoint(path).faults();
    } catch (const UserError& error) {
        return {error.what()};
    }
}

/// What a fault at a byte of a file must be called.
struct Region {
    int64_t begin = 0, end = 0;
    std::string name;
};

std::vector<Region> regions(const Checkpoint& checkpoint, int file) {
    std::vector<Region> found;
    for (const TensorInfo& tensor : checkpoint.tensors()) {
        for (const StoredSlab& slab : checkpoint.slabs(tensor)) {
            const int64_t bytes = slab.slab.num_elements() * size_bytes(tensor.type);
            if (slab.file == file)
                found.push_back({slab.at, slab.at + bytes, "tensor '" + tensor.name + "'"});
        }
    }
    for (const StoredAsset& asset : checkpoint.manifest().assets) {
        if (file == StoredSlab::kThisFile) {
            found.push_back({asset.at, asset.at + asset.num_bytes, "asset '" + asset.name + "'"});
        }
    }
    return found;
}

std::string region_name(const std::vector<Region>& regions, int64_t at) {
    for (const Region& region : regions) {
        if (at >= region.begin && at < region.end) return region.name;
    }
    return at < 18 ? "does not begin with" : "outside the tensors";  // 18: the mark of our files
}

/// Flips a bit of the file while this object lives.
class FlippedBit {
  public:
    FlippedBit(const std::filesystem::path& path, int64_t at, int bit)
        : descriptor_(::open(path.c_str(), O_RDWR)), at_(at), mask_(static_cast<char>(1 << bit)) {
        flip();
    }
    ~FlippedBit() {
        flip();
        ::close(descriptor_);
    }

  private:
    void flip() {
        char byte = 0;
        EXPECT_EQ(::pread(descriptor_, &byte, 1, at_), 1);
        byte = static_cast<char>(byte ^ mask_);
        EXPECT_EQ(::pwrite(descriptor_, &byte, 1, at_), 1);
    }
    int descriptor_;
    int64_t at_;
    char mask_;
};

class Damage : public ::testing::Test {
  protected:
    Damage() {
        for (int i = 0; i < 3; ++i) {
            sample_.add(
                random_,
                {.name = "model/w" + std::to_string(i), .type = ElementType::BFloat16, .shape = {7, 9}});
        }
        step_ = write_step(random_, folder_ / "run", sample_, 2);
    }

    /// Every byte of a file, a random bit of it.
    void flip_all(const std::filesystem::path& checkpoint, const std::filesystem::path& file, int number) {
        const std::vector<Region> named = regions(Checkpoint(checkpoint), number);
        const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
        for (int64_t at = 0; at < size; ++at) {
            const FlippedBit flipped(file, at, static_cast<int>(below(random_, 8)));
            const std::vector<std::string> faults = all_faults(checkpoint);
            ASSERT_EQ(faults.size(), 1) << "byte " << at << " of " << file;
            ASSERT_NE(faults[0].find(file.string()), std::string::npos) << faults[0];
            ASSERT_NE(faults[0].find(region_name(named, at)), std::string::npos) << at << ": " << faults[0];
        }
        EXPECT_EQ(all_faults(checkpoint), std::vector<std::string>());
    }

    Random random_{11};
    ScratchFolder folder_;
    Sample sample_;
    std::filesystem::path step_;
};

TEST_F(Damage, OfEachBitOfTheManifestIsFoundAndNamed) {
    flip_all(step_, step_ / "checkpoint.h5", StoredSlab::kThisFile);
}

TEST_F(Damage, OfEachBitOfAShardIsFoundAndNamed) {
    flip_all(step_, step_ / shard_name(0, 2), 0);
    flip_all(step_, step_ / shard_name(1, 2), 1);
}

TEST_F(Damage, OfEachBitOfAFullFileIsFoundAndNamed) {
    write_full_file(random_, folder_ / "all.h5", sample_);
    flip_all(folder_ / "all.h5", folder_ / "all.h5", StoredSlab::kThisFile);
}

TEST_F(Damage, IsFoundOnceByThePartsOfACheckTogether) {
    const TensorInfo tensor = Checkpoint(step_).tensors()[1];
    const StoredSlab slab = Checkpoint(step_).slabs(tensor)[0];
    const FlippedBit flipped(step_ / shard_name(slab.file, 2), slab.at, 3);
    for (const int num_parts : {1, 2, 3, 7, 50}) {
        std::vector<std::string> faults;
        for (int part = 0; part < num_parts; ++part) {
            for (const std::string& fault : Checkpoint(step_).faults(part, num_parts))
                faults.push_back(fault);
        }
        ASSERT_EQ(faults.size(), 1) << num_parts;
        expect_message(faults[0],
                       {shard_name(slab.file, 2), "tensor '" + tensor.name + "'", slab.hash.hex()});
    }
}

TEST_F(Damage, ByTruncationOrGrowthIsFoundAtEachLength) {
    for (const std::string& name : {std::string("checkpoint.h5"), shard_name(0, 2), shard_name(1, 2)}) {
        const std::filesystem::path file = step_ / name;
        const std::string whole_file = read_file(file);
        for (size_t size = 0; size < whole_file.size(); size += 1 + below(random_, 97)) {
            std::filesystem::resize_file(file, size);
            const std::vector<std::string> faults = all_faults(step_);
            ASSERT_EQ(faults.size(), 1) << size;
            expect_message(faults[0], {file.string(), "truncated", std::to_string(size) + " bytes"});
            write_file(file, whole_file);
        }
        write_file(file, whole_file + "x");
        EXPECT_EQ(all_faults(step_).size(), 1);
        write_file(file, whole_file);
    }
    EXPECT_EQ(all_faults(step_), std::vector<std::string>());
}

TEST_F(Damage, ByAMissingShardIsNamedWithWhatItHeld) {
    std::filesystem::remove(step_ / shard_name(1, 2));
    const std::vector<std::string> faults = all_faults(step_);
    ASSERT_EQ(faults.size(), 1);
    expect_message(faults[0], {"shard-00001-of-00002.h5", "No such file", "tensors, such as 'model/w"});
}

TEST_F(Damage, ByAShardOfAnotherSaveIsNamed) {
    const auto other = write_step(random_, folder_ / "other", sample_, 2);
    std::filesystem::copy_file(other / shard_name(0, 2), step_ / shard_name(0, 2),
                               std::filesystem::copy_options::overwrite_existing);
    const Checkpoint checkpoint(step_);
    const std::vector<std::string> faults = checkpoint.faults();
    ASSERT_EQ(faults.size(), 1);
    const std::string check = checkpoint.manifest().files[0].check.hex();
    expect_message(faults[0], {shard_name(0, 2), "foreign shard", check});
    int num_lost = 0;
    for (const CutTensor& tensor : checkpoint.manifest().plan.tensors) {
        if (!slab_of(checkpoint.manifest().plan.grid, tensor, 0)) continue;
        std::vector<std::byte> out(tensor.info.num_bytes());
        EXPECT_ERROR(checkpoint.read(tensor.info, layout::whole(tensor.info.shape), out), UserError,
                     "foreign shard", check);
        ++num_lost;
    }
    EXPECT_GT(num_lost, 0);
}

/// A manifest of other cuts over the same shards, well checked as it is.
TEST_F(Damage, ByAManifestThatContradictsTheShardsIsNamed) {
    Manifest manifest = Checkpoint(step_).manifest();
    manifest.assets.clear();
    CutTensor& tensor = manifest.plan.tensors[1];
    const size_t axis = manifest.plan.grid.size() - 1 - (manifest.plan.grid.back() == 1);
    tensor.cuts[axis] = tensor.cuts[axis].parts == 2 ? GridCut{.first = 1} : GridCut{.parts = 2};
    write_manifest(step_ / "checkpoint.h5", manifest, {});
    const Checkpoint checkpoint(step_);
    const std::vector<std::string> faults = checkpoint.faults();
    ASSERT_GE(faults.size(), 1);
    expect_message(faults[0], {"shard-0000", "its table ", "tensor '" + tensor.info.name + "'"});
    std::vector<std::byte> out(tensor.info.num_bytes());
    EXPECT_ERROR(checkpoint.read(tensor.info, layout::whole(tensor.info.shape), out), UserError, "its table ",
                 tensor.info.name);
}

}  // namespace
}  // namespace argosy::checkpoint
