// Checkpoints of many meshes, and damaged ones, are in torch_test.py.
#include "pytorch/distributed_checkpoint.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "expect_error.h"
#include "pytorch/distributed_checkpoint_writer.h"
#include "pytorch/distributed_metadata.h"
#include "scratch_folder.h"

namespace argosy::pytorch {
namespace {

using namespace std::string_literals;
namespace fs = std::filesystem;
using checkpoint::TensorInfo;

const fs::path kTwoRanks = fs::path(SAMPLES) / "two_ranks";

TEST(DistributedCheckpoint, TorchsFolderIsRead) {
    const DistributedCheckpoint checkpoint(kTwoRanks);
    ASSERT_EQ(checkpoint.tensors().size(), 2U);
    const TensorInfo& weight = checkpoint.at("weight");  // rows 0 and 1 of rank 0, row 2 of rank 1
    EXPECT_EQ(weight, (TensorInfo{"weight", ElementType::Float32, {3, 2}}));
    std::vector<float> column(2);
    checkpoint.read(weight, {{1, 1}, {2, 1}}, std::as_writable_bytes(std::span(column)));
    EXPECT_EQ(column, (std::vector<float>{3, 5}));
    double scale = 0;
    checkpoint.read(checkpoint.at("scale"), {}, std::as_writable_bytes(std::span(&scale, 1)));
    EXPECT_EQ(scale, 2.5);

    EXPECT_EQ(checkpoint.object_keys(), (std::vector<std::string>{"rates", "step"}));
    EXPECT_EQ(checkpoint.object("step")->root().integer(), 7);
    EXPECT_EQ(checkpoint.object("rates")->root().items()[0].number(), 0.5);
    EXPECT_EQ(checkpoint.object("weight"), nullptr);
    EXPECT_TRUE(is_distributed_checkpoint(kTwoRanks));
    EXPECT_FALSE(is_distributed_checkpoint(SAMPLES));
}

TEST(DistributedCheckpoint, AFolderWithoutMetadataIsRefused) {
    const ScratchFolder folder;
    EXPECT_ERROR(DistributedCheckpoint{folder / "x"}, UserError, "x", ".metadata", "interrupted");
}

/// Repeats what a pickle has, without its begin and end.
std::string repeated(const std::string& text, size_t count) {
    std::string all;
    while (count-- > 0) all += text;
    return all;
}

constexpr size_t kMany = 4000;

std::string text_pickle(const std::string& text) {
    std::string bytes = "X";
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(text.size() >> shift);
    return bytes + text;
}

/// An object whose fields are given, as the memo's value `index`.
std::string object_pickle(const std::string& name, const std::string& fields, char index) {
    return "ctorch.distributed.checkpoint." + name + "\n)\x81}(" + fields + "ubq" + index + "0";
}

/// The metadata of an item, all of whose entries share one key and one value.
std::string shared_entries(const std::string& name, const std::string& offset,
                           const std::string& more_fields) {
    const std::string entry =
        object_pickle("metadata\nMetadataIndex",
                      more_fields + text_pickle("fqn") + text_pickle(name) + text_pickle("offset") + offset,
                      '1') +
        object_pickle("filesystem\n_StorageInfo",
                      text_pickle("relative_path") + text_pickle("__0_0.distcp") + text_pickle("offset") +
                          "K\x01" + text_pickle("length") + "K\x01",
                      '2');
    return entry + "ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}(" +
           text_pickle("state_dict_metadata") + "}" + text_pickle("storage_data") + "}(" +
           repeated("h1h2", kMany) + "uub.";
}

/// The metadata of tensors that share one list of chunks.
std::string shared_chunks() {
    const std::string size = "K\x00\x85"s;
    std::string bytes =
        object_pickle("metadata\nChunkStorageMetadata",
                      text_pickle("offsets") + size + text_pickle("sizes") + size, '1') +
        object_pickle("metadata\nTensorProperties", text_pickle("dtype") + "ctorch\nfloat32\n", '2') +
        object_pickle("metadata\nTensorStorageMetadata",
                      text_pickle("properties") + "h2" + text_pickle("size") + size + text_pickle("chunks") +
                          "](" + repeated("h1", kMany) + "e",
                      '3');
    bytes += "ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}(" +
             text_pickle("state_dict_metadata") + "}(";
    for (size_t i = 0; i < kMany; ++i) bytes += text_pickle(std::to_string(i)) + "h3";
    return bytes + "u" + text_pickle("storage_data") + "}ub.";
}

TEST(DistributedCheckpoint, WhatManyEntriesShareIsNotReadAgainAndAgain) {
    const std::string once = "K\x01\x85", fields = repeated("K\x01N", kMany);
    const auto parse = [](const std::string& bytes) {
        const std::string pickle = "\x80\x02" + bytes;
        return parse_metadata(Pickle(std::as_bytes(std::span(pickle)), "F"), "F");
    };
    EXPECT_EQ(parse(shared_entries("w", once, "")).files.size(), 1U);
    EXPECT_ERROR(parse(shared_entries("w", "(" + repeated("K\x01", kMany) + "t", "")), DamageError,
                 "no torch.Size");
    const char* fault = "its values refer to each other too often";
    EXPECT_ERROR(parse(shared_entries("w", once, fields)), DamageError, "F", fault);
    EXPECT_ERROR(parse(shared_entries(std::string(kMany, 'w'), once, "")), DamageError, "F", fault);
    EXPECT_ERROR(parse(shared_chunks()), DamageError, "F", fault);
}

TEST(DistributedCheckpoint, WhatIsWrittenComesBack) {
    const ScratchFolder folder;
    fs::create_directory(folder / "x");
    std::vector<TensorInfo> tensors;
    for (int type = 0; type <= static_cast<int>(ElementType::UInt16); ++type)
        tensors.push_back({"t" + std::to_string(type), static_cast<ElementType>(type), {3, 5}});
    tensors.push_back({"scalar", ElementType::Float32, {}});
    tensors.push_back({"empty", ElementType::Float32, {0, 4}});
    const auto bytes_of = [](const TensorInfo& tensor) {
        std::vector<std::byte> bytes(tensor.num_bytes());
        for (size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<std::byte>(i * 7 + tensor.name.size());
        return bytes;
    };
    DistributedCheckpointWriter writer(
        {folder / "x", tensors, {{"state.step", {int64_t{7}}}, {"state.text", {std::string("a")}}}, 3000});
    for (size_t i = 0; i < tensors.size(); ++i) {
        const std::vector<std::byte> bytes = bytes_of(tensors[i]);
        const size_t half = bytes.size() / 2;
        for (const size_t first : {half, size_t{0}, half + (bytes.size() - half) / 2}) {
            const size_t end = first == 0      ? half
                               : first == half ? half + (bytes.size() - half) / 2
                                               : bytes.size();
            writer.write(i, static_cast<int64_t>(first), std::span(bytes).subspan(first, end - first));
        }
    }
    EXPECT_FALSE(is_distributed_checkpoint(folder / "x"));
    writer.finish();

    const DistributedCheckpoint read(folder / "x");
    ASSERT_EQ(read.tensors().size(), tensors.size());
    for (const TensorInfo& tensor : tensors) {
        EXPECT_EQ(read.at(tensor.name), tensor);
        std::vector<std::byte> bytes(tensor.num_bytes());
        read.read(tensor, layout::whole(tensor.shape), bytes);
        EXPECT_EQ(bytes, bytes_of(tensor)) << tensor.name;
    }
    EXPECT_EQ(read.object("state.step")->root().integer(), 7);
    EXPECT_EQ(*read.object("state.text")->root().text(), "a");
    int64_t num_files = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder / "x"))
        if (entry.path().extension() == ".distcp") {
            ++num_files;
            EXPECT_LE(fs::file_size(entry), 3000U);
        }
    EXPECT_GT(num_files, 3);
}

ChunkedTensor chunked(std::vector<int64_t> shape, const std::vector<layout::Slab>& slabs) {
    ChunkedTensor tensor{"t", "torch.float32", std::move(shape), {}};
    for (const layout::Slab& slab : slabs) tensor.chunks.push_back({slab, {}});
    return tensor;
}

TEST(Chunks, MustTileTheTensor) {
    check_chunks(chunked({}, {{{}, {}}}), "F");
    check_chunks(chunked({0, 3}, {}), "F");
    check_chunks(chunked({3, 4}, {{{0, 0}, {1, 4}}, {{1, 0}, {2, 3}}, {{1, 3}, {2, 1}}}), "F");
    EXPECT_ERROR(check_chunks(chunked({}, {}), "F"), DamageError, "\"t\"", "0 of 1 elements");
    EXPECT_ERROR(check_chunks(chunked({3, 4}, {{{0, 0}, {1, 4}}, {{2, 0}, {1, 4}}}), "F"), DamageError, "F",
                 "\"t\" [3, 4]", "8 of 12 elements");
    EXPECT_ERROR(check_chunks(chunked({3, 4}, {{{0, 0}, {2, 4}}, {{1, 3}, {2, 1}}}), "F"), DamageError,
                 "[0, 0] of [2, 4]", "[1, 3] of [2, 1]", "overlap");
    EXPECT_ERROR(check_chunks(chunked({3, 4}, {{{0, 0}, {3, 5}}}), "F"), DamageError, "[0, 0] of [3, 5]",
                 "outside");
    EXPECT_ERROR(check_chunks(chunked({3, 4}, {{{0}, {3}}}), "F"), DamageError, "outside");
    const int64_t huge = int64_t{1} << 40;
    EXPECT_ERROR(check_chunks(chunked({huge, huge}, {{{0, 0}, {huge, huge}}}), "F"), DamageError,
                 "too large");
}

TEST(Chunks, ManyAreCheckedInTimeThatGrowsWithTheirNumber) {
    constexpr int64_t kRows = 100'000;
    for (const bool along_last : {false, true}) {
        std::vector<layout::Slab> slabs;
        for (int64_t i = 0; i < kRows; ++i)
            slabs.push_back(along_last ? layout::Slab{{0, i}, {2, 1}} : layout::Slab{{i, 0}, {1, 2}});
        check_chunks(
            chunked(along_last ? std::vector<int64_t>{2, kRows} : std::vector<int64_t>{kRows, 2}, slabs),
            "F");
    }
}

}  // namespace
}  // namespace argosy::pytorch
