// Files that torch wrote are in torch_test.py, too; samples/ holds some for machines without Python's torch.
#include "pytorch/saved_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "expect_error.h"
#include "pytorch/pickle_writer.h"
#include "pytorch/zip.h"
#include "pytorch/zip_writer.h"
#include "scratch_folder.h"

namespace argosy::pytorch {
namespace {

using namespace std::string_literals;

const std::string kSamples = SAMPLES;

template <class Number>
std::vector<Number> read_all(const checkpoint::TensorSource& source, const std::string& name) {
    const checkpoint::TensorInfo& tensor = source.at(name);
    std::vector<Number> numbers(tensor.num_elements());
    source.read(tensor, layout::whole(tensor.shape), std::as_writable_bytes(std::span(numbers)));
    return numbers;
}

TEST(SavedFile, TorchsFileIsRead) {
    const SavedFile file(kSamples + "/saved.pth");
    ASSERT_EQ(file.tensors().size(), 2U);
    EXPECT_EQ(file.at("weight"), (checkpoint::TensorInfo{"weight", ElementType::Float32, {2, 3}}));
    EXPECT_EQ(read_all<float>(file, "weight"), (std::vector<float>{0, 2, 4, 1, 3, 5}));  // transposed
    EXPECT_EQ(read_all<int64_t>(file, "nested.0"), (std::vector<int64_t>{0, 1, 2}));
    EXPECT_EQ(file.root().find("step")->integer(), 7);
    EXPECT_TRUE(is_saved_file(kSamples + "/saved.pth"));
    EXPECT_FALSE(is_saved_file(kSamples));
}

TEST(SavedFile, TheFormBeforeTorch16IsRefusedWithTheRemedy) {
    const std::string path = kSamples + "/before_1.6.pth";
    EXPECT_TRUE(is_saved_file(path));
    EXPECT_ERROR(SavedFile{path}, UserError, path, "before torch 1.6", "torch.save(torch.load(");
}

TEST(SavedFile, EveryTruncatedFileIsRefused) {
    const std::string bytes = read_file(kSamples + "/saved.pth");
    const ScratchFolder folder;
    const auto path = folder / "x.pth";
    for (size_t size = 0; size < bytes.size(); size += size < bytes.size() - 100 ? 61 : 1) {
        write_file(path, bytes.substr(0, size));
        EXPECT_ERROR(SavedFile{path}, UserError, path.string());
    }
}

/// Writes a file whose pickle is given.
void write_save(const std::filesystem::path& path, const std::string& pickle) {
    const std::vector<std::pair<std::string, std::string>> small = {{"a/data.pkl", pickle}};
    const ZipFrame frame = frame_zip(small, std::nullopt);
    write_file(path, frame.head + frame.tail);
}

TEST(SavedFile, DictsThatReferToEachOtherAreNotUnfolded) {
    const ScratchFolder folder;
    std::string pickle = "\x80\x04N\x94";  // the memo has the dict of each level
    for (int level = 0; level < 60; ++level) {
        const std::string before = std::string("h") + static_cast<char>(level);
        pickle += "0}\x94(\x8c\x01x" + before + "\x8c\x01y" + before + "u";
    }
    write_save(folder / "x.pth", pickle + ".");
    EXPECT_ERROR(SavedFile{folder / "x.pth"}, UserError, "refer to each other too often");
    write_save(folder / "x.pth",
               "\x80\x04}\x94\x8c\x01"
               "ah\x00s."s);  // a dict that holds itself
    EXPECT_ERROR(SavedFile{folder / "x.pth"}, UserError, "too deeply nested");
}

/// A tensor of float32 in a storage of `num_elements`.
std::string tensor_pickle(int64_t num_elements, int64_t first, std::vector<int64_t> shape,
                          std::vector<int64_t> strides) {
    PickleWriter pickle;
    pickle.global("torch._utils._rebuild_tensor_v2").begin_tuple().begin_tuple().text("storage");
    pickle.global("torch.FloatStorage")
        .text("0")
        .text("cpu")
        .integer(num_elements)
        .end_tuple()
        .persistent_id();
    pickle.integer(first).size(shape).size(strides);
    return pickle.end_tuple().call().finish();
}

TEST(SavedFile, ElementsOutsideTheStorageAreRefused) {
    const ScratchFolder folder;
    const auto write = [&](const std::string& pickle) {
        const std::vector<std::pair<std::string, std::string>> small = {{"a/data.pkl", pickle}};
        const ZipFrame frame = frame_zip(small, LastEntry{"a/data/0", 24, 0});
        write_file(folder / "x.pth", frame.head + std::string(24, '\0') + frame.tail);
    };
    write(tensor_pickle(6, 1, {5}, {1}));
    EXPECT_EQ(SavedFile(folder / "x.pth").tensors().size(), 1U);
    const int64_t huge = int64_t{1} << 62;
    for (const std::string& pickle :
         {tensor_pickle(6, 2, {5}, {1}), tensor_pickle(6, 0, {2, 5}, {2, 1}), tensor_pickle(6, 6, {1}, {1}),
          tensor_pickle(6, 0, {3, 3}, {huge, huge}), tensor_pickle(6, huge, {2}, {huge}),
          tensor_pickle(6, 0, {huge, huge}, {0, 0}), tensor_pickle(6, -1, {1}, {1}),
          tensor_pickle(6, 0, {1}, {1, 1})}) {
        write(pickle);
        EXPECT_ERROR(SavedFile(folder / "x.pth"), DamageError, "x.pth", "describes a tensor by");
    }
    write(tensor_pickle(5, 0, {5}, {1}));
    EXPECT_ERROR(SavedFile(folder / "x.pth"), DamageError, "a storage of another size");
}

TEST(SavedFile, ATensorWithoutElementsMayBeginAnywhere) {
    const ScratchFolder folder;
    const auto value = [](const std::string& pickle) { return pickle.substr(2, pickle.size() - 3); };
    const std::string pickle = "\x80\x02(" + value(tensor_pickle(6, 0, {6}, {1})) +
                               value(tensor_pickle(6, int64_t{1} << 61, {0, 2}, {2, 1})) + "t.";
    const std::vector<std::pair<std::string, std::string>> small = {{"a/data.pkl", pickle}};
    const ZipFrame frame = frame_zip(small, LastEntry{"a/data/0", 24, 0});
    write_file(folder / "x.pth", frame.head + std::string(24, '\0') + frame.tail);
    const SavedFile file(folder / "x.pth");
    ASSERT_EQ(file.tensors().size(), 2U);
    EXPECT_EQ(file.tensors()[1], (checkpoint::TensorInfo{"1", ElementType::Float32, {0, 2}}));
}

TEST(SavedFile, ATensorOfTooManyDimsIsRefused) {
    const ScratchFolder folder;
    const std::vector<int64_t> dims(33, 1);
    write_save(folder / "x.pth", tensor_pickle(1, 0, dims, dims));
    EXPECT_ERROR(SavedFile(folder / "x.pth"), DamageError, "an offset, sizes and strides");
}

TEST(SavedFile, ATensorIsNotCopiedAgainAndAgain) {
    const ScratchFolder folder;
    std::string pickle = tensor_pickle(6, 0, {6}, {1});
    pickle.back() = 'q';  // in place of the end
    pickle += "c0(";
    constexpr size_t kCount = 300;
    for (size_t i = 0; i < kCount; ++i) pickle += "hc";
    pickle += "tqd0(";
    for (size_t i = 0; i < kCount; ++i) pickle += "hd";
    const std::vector<std::pair<std::string, std::string>> small = {{"a/data.pkl", pickle + "t."}};
    const ZipFrame frame = frame_zip(small, LastEntry{"a/data/0", 24, 0});
    write_file(folder / "x.pth", frame.head + std::string(24, '\0') + frame.tail);
    EXPECT_ERROR(SavedFile(folder / "x.pth"), UserError, "refer to each other too often");
}

TEST(Zip, EntriesBeyondFourGigabytesAreFound) {
    const ScratchFolder folder;
    const int64_t num_bytes = (int64_t{1} << 32) + 5;
    const std::vector<std::pair<std::string, std::string>> small = {{"a/small", "bytes"}};
    const ZipFrame frame = frame_zip(small, LastEntry{"a/large", num_bytes, 0});
    const RawFile file = RawFile::create_nameless(folder / "x");  // sparse
    const int64_t begin = 7, tail_at = begin + std::ssize(frame.head) + num_bytes;
    file.write_at(begin, std::as_bytes(std::span(frame.head)));
    file.write_at(tail_at, std::as_bytes(std::span(frame.tail)));
    const auto entries = read_zip(file, begin, tail_at + std::ssize(frame.tail) - begin, "F");
    EXPECT_EQ(entries.at("a/large").num_bytes, num_bytes);
    EXPECT_EQ(entries.at("a/large").at, begin + std::ssize(frame.head));
    EXPECT_EQ((entries.at("a/large").at - begin) % 64, 0);
    EXPECT_EQ(entries.at("a/small").num_bytes, 5);
}

TEST(Zip, AComment) {
    const ScratchFolder folder;
    const std::vector<std::pair<std::string, std::string>> small = {{"a/small", "bytes"}};
    ZipFrame frame = frame_zip(small, std::nullopt);
    frame.tail.replace(frame.tail.size() - 2, 2, "\x03\x00"s);
    write_file(folder / "x", frame.head + frame.tail + "abc");
    const RawFile file = RawFile::open_to_read(folder / "x");
    EXPECT_EQ(read_zip(file, 0, file.size_bytes(), "F").size(), 1U);
    EXPECT_ERROR(read_zip(file, 0, file.size_bytes() - 1, "F"), DamageError, "lacks its end");
}

}  // namespace
}  // namespace argosy::pytorch
