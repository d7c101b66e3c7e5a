// Damaged files of torch: whatever is read of them is tensors that can be read, or one error.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "pytorch/distributed_checkpoint.h"
#include "pytorch/saved_file.h"
#include "scratch_folder.h"
#include "support/fuzzing.h"

namespace argosy::pytorch {
namespace {

using namespace std::string_literals;
namespace fs = std::filesystem;

const fs::path kSamples = SAMPLES;

/// Bytes that readers of pickles and zips are prone to misread.
const std::vector<std::string> kParts = {"\x80\x02"s,
                                         "."s,
                                         "("s,
                                         "]"s,
                                         "}"s,
                                         ")"s,
                                         "t"s,
                                         "e"s,
                                         "u"s,
                                         "s"s,
                                         "a"s,
                                         "R"s,
                                         "b"s,
                                         "Q"s,
                                         "\x81"s,
                                         "\x93"s,
                                         "\x94"s,
                                         "\x85"s,
                                         "\x86"s,
                                         "\x87"s,
                                         "h\x01"s,
                                         "q\xff"s,
                                         "K\xff"s,
                                         "J\xff\xff\xff\xff"s,
                                         "j\xff\xff\xff\x7f"s,
                                         "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s,
                                         "X\xff\xff\xff\x7f"s,
                                         "ctorch\nSize\n"s,
                                         "cos\nsystem\n"s,
                                         "PK\x01\x02"s,
                                         "PK\x03\x04"s,
                                         "PK\x05\x06"s,
                                         "PK\x06\x06"s,
                                         "\xff\xff\xff\xff"s,
                                         "\0\0\0\0"s};

/// Replaces bytes without changing the length, so that what lies behind them stays in its place.
std::string overwritten(std::string text, std::mt19937_64& random) {
    for (size_t left = 1 + random() % 3; left > 0; --left) {
        const std::string& part = kParts[random() % kParts.size()];
        const size_t at = random() % text.size(), count = std::min(part.size(), text.size() - at);
        random() % 2 == 0 ? text.replace(at, count, part, 0, count)
                          : text.replace(at, 1, 1, static_cast<char>(random()));
    }
    return text;
}

std::string damaged(const std::string& sound, std::mt19937_64& random) {
    return random() % 3 == 0 ? testing::mutated(sound, kParts, random) : overwritten(sound, random);
}

struct Count {
    int accepted = 0, refused = 0;
    template <class Call>
    void run(Call&& call) {
        try {
            call();
            ++accepted;
        } catch (const UserError& error) {
            ++refused;
            EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        }
    }
};

/// Reads the first elements of each tensor.
void read_tensors(const checkpoint::TensorSource& source) {
    for (const checkpoint::TensorInfo& tensor : source.tensors()) {
        layout::Slab slab = layout::whole(tensor.shape);
        for (int64_t& size : slab.size) size = std::min<int64_t>(size, 4);
        if (slab.size.size() > 6) continue;
        std::vector<std::byte> bytes(slab.num_elements() * size_bytes(tensor.type));
        source.read(tensor, slab, bytes);
    }
}

TEST(PytorchFuzz, DamagedMetadata) {
    const ScratchFolder scratch;
    const fs::path folder = scratch / "x";
    fs::copy(kSamples / "two_ranks", folder);
    const std::string sound = read_file(folder / ".metadata");
    Count count;
    for (const uint64_t seed : testing::FuzzSeeds(1000)) {
        std::mt19937_64 random(seed);
        fs::remove(folder / ".metadata");
        write_file(folder / ".metadata", damaged(sound, random));
        count.run([&] {
            const DistributedCheckpoint checkpoint(folder);
            read_tensors(checkpoint);
            for (const std::string& key : checkpoint.object_keys()) checkpoint.object(key);
        });
    }
    EXPECT_GT(count.accepted, 20);
    EXPECT_GT(count.refused, 500);
}

TEST(PytorchFuzz, DamagedItems) {
    const ScratchFolder scratch;
    const fs::path folder = scratch / "x";
    fs::copy(kSamples / "two_ranks", folder);
    const std::string sound = read_file(folder / "__1_0.distcp");
    Count count;
    for (const uint64_t seed : testing::FuzzSeeds(1000)) {
        std::mt19937_64 random(seed);
        fs::remove(folder / "__1_0.distcp");
        write_file(folder / "__1_0.distcp", damaged(sound, random));
        count.run([&] {
            const DistributedCheckpoint checkpoint(folder);
            read_tensors(checkpoint);
            for (const std::string& key : checkpoint.object_keys()) checkpoint.object(key);
        });
    }
    EXPECT_GT(count.accepted, 20);
    EXPECT_GT(count.refused, 200);
}

TEST(PytorchFuzz, DamagedSaves) {
    const ScratchFolder scratch;
    const fs::path path = scratch / "x.pth";
    const std::string sound = read_file(kSamples / "saved.pth");
    Count count;
    for (const uint64_t seed : testing::FuzzSeeds(1000)) {
        std::mt19937_64 random(seed);
        fs::remove(path);
        write_file(path, damaged(sound, random));
        count.run([&] { read_tensors(SavedFile(path)); });
    }
    EXPECT_GT(count.accepted, 20);
    EXPECT_GT(count.refused, 200);
}

}  // namespace
}  // namespace argosy::pytorch
