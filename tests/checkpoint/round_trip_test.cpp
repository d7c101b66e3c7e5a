#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/error.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "h5/file.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

void expect_sample(Random& random, const Checkpoint& checkpoint, const Sample& sample) {
    ASSERT_EQ(checkpoint.tensors().size(), sample.tensors.size());
    for (const TensorInfo& tensor : sample.tensors) {
        ASSERT_EQ(checkpoint.at(tensor.name), tensor);
        EXPECT_EQ(read(checkpoint, tensor, layout::whole(tensor.shape)), sample.bytes.at(tensor.name))
            << tensor.name;
        for (int i = 0; i < 5; ++i) {
            const layout::Slab slab = random_slab(random, tensor);
            EXPECT_EQ(read(checkpoint, tensor, slab), bytes_of_slab(sample, tensor, slab)) << tensor.name;
        }
    }
    for (const Asset& asset : kSampleAssets) EXPECT_EQ(checkpoint.asset(asset.name), asset.bytes);
    EXPECT_EQ(checkpoint.description(), sample_description());
    EXPECT_EQ(checkpoint.faults(), std::vector<std::string>());
}

TEST(RoundTrip, AnyPiecesAreReadAsAnyOthers) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
        SCOPED_TRACE(seed);
        Random random(seed);
        const ScratchFolder folder;
        const Sample sample = random_sample(random, 12);
        const auto step = write_step(random, folder / "run", sample, static_cast<int>(1 + seed % 5));
        expect_sample(random, Checkpoint(step), sample);
        expect_sample(random, Checkpoint(step / "checkpoint.h5"), sample);
        write_full_file(random, folder / "all.h5", sample);
        expect_sample(random, Checkpoint(folder / "all.h5"), sample);
    }
}

// Its table and every name are HDF5's, and each dataset's bytes are the tensor's.
TEST(RoundTrip, Hdf5ReadsTheSameBytes) {
    Random random(1);
    const ScratchFolder folder;
    const Sample sample = random_sample(random, 10);
    const auto step = write_step(random, folder / "run", sample, 3);
    write_full_file(random, folder / "all.h5", sample);
    for (const std::filesystem::path& path : {step / "checkpoint.h5", folder / "all.h5"}) {
        const h5::File file = h5::File::open(path);
        for (const TensorInfo& tensor : sample.tensors) {
            const h5::Dataset dataset = file.open_dataset(tensor.name);
            EXPECT_EQ(dataset.type(), tensor.type);
            EXPECT_EQ(dataset.shape(), tensor.shape);
            std::vector<std::byte> bytes(tensor.num_bytes());
            dataset.read(bytes);
            EXPECT_EQ(bytes, sample.bytes.at(tensor.name)) << path << ' ' << tensor.name;
        }
        EXPECT_EQ(file.open_dataset("assets/tokenizer.json").num_elements(), kSampleAssets[0].bytes.size());
        EXPECT_EQ(file.open_dataset("table").type(), ElementType::UInt8);
    }
}

TEST(RoundTrip, PiecesMayBeAppendedToAndReadByThreads) {
    Random random(2);
    const ScratchFolder folder;
    Sample sample;
    for (int i = 0; i < 8; ++i) {
        sample.add(
            random,
            {.name = "model/w" + std::to_string(i), .type = ElementType::Float32, .shape = {64, 1000}});
    }
    TensorFile writer =
        TensorFile::full(folder / "all.h5", sample_description(), sample.tensors, kSampleAssets);
    const auto on_threads = [&](auto work) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                Random own(t);
                for (size_t i = t; i < sample.tensors.size(); i += 4) work(own, i);
            });
        }
        for (std::thread& thread : threads) thread.join();
    };
    on_threads(
        [&](Random& own, size_t i) { append(own, writer, i, sample.bytes.at(sample.tensors[i].name)); });
    writer.finish();
    expect_sample(random, Checkpoint(folder / "all.h5"), sample);

    const auto step = write_step(random, folder / "run", sample, 4);
    const Checkpoint checkpoint(step);
    on_threads([&](Random&, size_t i) {
        const TensorInfo& tensor = sample.tensors[i];
        EXPECT_EQ(read(checkpoint, tensor, layout::whole(tensor.shape)), sample.bytes.at(tensor.name));
    });
    EXPECT_EQ(checkpoint.bytes_read(), 8 * 64 * 1000 * 4);
}

TEST(RoundTrip, APieceThatLacksBytesOrGetsTooManyIsAMistakeOfOurs) {
    const ScratchFolder folder;
    const std::vector<TensorInfo> tensors = {{.name = "a", .type = ElementType::UInt8, .shape = {4}}};
    TensorFile writer = TensorFile::full(folder / "a.h5", sample_description(), tensors, {});
    const std::vector<std::byte> bytes(5);
    EXPECT_ERROR(writer.finish(), RunError, "internal error", "0 bytes of 4");
    EXPECT_ERROR(writer.append(0, bytes), RunError, "internal error", "5 bytes after 0 of 4");
}

// A writer that never finished left no user block: nobody takes its file for one of ours.
TEST(RoundTrip, AnUnfinishedFileIsNone) {
    const ScratchFolder folder;
    const std::vector<TensorInfo> tensors = {{.name = "a", .type = ElementType::UInt8, .shape = {4}}};
    TensorFile::full(folder / "a.h5", sample_description(), tensors, {});
    EXPECT_ERROR(Checkpoint{folder / "a.h5"}, DamageError, "a.h5 is damaged: it does not begin with");
}

TEST(RoundTrip, NamesWhatIsThere) {
    Random random(3);
    const ScratchFolder folder;
    const auto step = write_step(random, folder / "run", random_sample(random, 6), 2);
    const Checkpoint checkpoint(step);
    EXPECT_EQ(checkpoint.find("model/none"), nullptr);
    EXPECT_ERROR(checkpoint.at("model/none"), UserError, "model/none", "6 tensors", "model/layers.1.weight");
    EXPECT_ERROR(checkpoint.asset("none"), UserError, "tokenizer.json");
    EXPECT_ERROR(Checkpoint{folder / "run"}, UserError, "no checkpoint.h5", "step-00000007");
    EXPECT_ERROR(Checkpoint{folder / "absent"}, UserError, "absent", "No such file");
    EXPECT_ERROR(Checkpoint{step / shard_name(0, 2)}, UserError, "single shard");
    std::filesystem::create_directory(folder / "other");
    EXPECT_ERROR(Checkpoint{folder / "other"}, UserError, "no checkpoint.h5");
}

}  // namespace
}  // namespace argosy::checkpoint
