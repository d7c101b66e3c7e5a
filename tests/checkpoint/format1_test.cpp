// Checkpoints of format 1 are still read. format1/ was written by the last version that wrote that format: a
// step of three writers and a full file of the same tensors, byte i of a tensor being i * 37 + the length of
// its name.
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

const fs::path kFormat1Folder = ARGOSY_FORMAT1_FOLDER;
const fs::path kFormat1Step = kFormat1Folder / "step-00000007";

std::vector<std::byte> format1_bytes(const TensorInfo& tensor) {
    std::vector<std::byte> bytes(tensor.num_bytes());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + tensor.name.size());
    return bytes;
}

class Format1 : public ::testing::TestWithParam<fs::path> {};

TEST_P(Format1, IsReadWholeAndInParts) {
    const Checkpoint checkpoint(GetParam());
    EXPECT_EQ(checkpoint.description(), sample_description());
    EXPECT_EQ(checkpoint.asset("tokenizer.json"), "{\"a\": 1}\n");
    EXPECT_EQ(checkpoint.faults(), std::vector<std::string>());
    EXPECT_EQ(checkpoint.file_faults(), std::vector<std::string>());
    ASSERT_EQ(checkpoint.tensors().size(), 5u);
    EXPECT_EQ(checkpoint.at("model/b"), (TensorInfo{"model/b", ElementType::BFloat16, {2, 3, 4}}));
    Sample sample;
    Random random(5);
    for (const TensorInfo& tensor : checkpoint.tensors()) {
        sample.bytes[tensor.name] = format1_bytes(tensor);
        EXPECT_EQ(read(checkpoint, tensor, layout::whole(tensor.shape)), format1_bytes(tensor))
            << tensor.name;
        for (int round = 0; round < 50; ++round) {
            const layout::Slab slab = random_slab(random, tensor);
            EXPECT_EQ(read(checkpoint, tensor, slab), bytes_of_slab(sample, tensor, slab)) << tensor.name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Files, Format1, ::testing::Values(kFormat1Step, kFormat1Folder / "full.h5"),
                         [](const auto& test) { return test.index == 0 ? "Step" : "FullFile"; });

TEST(Format1Damage, IsFoundAndNamed) {
    const ScratchFolder folder;
    const fs::path step = folder / "step-00000007";
    fs::copy(kFormat1Step, step);
    const fs::path shard = step / "shard-00001-of-00003.h5";
    std::string bytes = read_file(shard);
    bytes[2616] ^= 4;
    write_file(shard, bytes);
    const std::vector<std::string> faults = Checkpoint(step).faults();
    ASSERT_EQ(faults.size(), 1u);
    expect_message(faults[0], {shard.string(), "tensor 'model/a'", "9774253091d9bcc0ea2c00888351307e"});
    fs::remove(shard);
    const std::vector<std::string> missing = Checkpoint(step).file_faults();
    ASSERT_EQ(missing.size(), 1u);
    expect_message(missing[0],
                   {shard.string(), "No such file", "it holds parts of 4 tensors, such as 'model/"});
}

}  // namespace
}  // namespace argosy::checkpoint
