#include "h5/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::h5 {
namespace {

const std::vector<float> kValues = {1, -2, 3.5, 0, 1e30F, -1e-30F};
constexpr std::array<int64_t, 2> kShape = {2, 3};

void write_sample(const std::filesystem::path& path) {
    File file = File::create(path);
    {
        Dataset weight = file.create_dataset("model/norm/weight", ElementType::Float32, kShape);
        weight.write(std::as_bytes(std::span(kValues)));
    }
    file.close();
}

TEST(File, GivesBackWhatWasWritten) {
    const ScratchFolder folder;
    write_sample(folder / "a.h5");
    const File file = File::open(folder / "a.h5");
    const Dataset weight = file.open_dataset("model/norm/weight");
    std::vector<float> values(kValues.size());
    weight.read(std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values, kValues);
    EXPECT_EQ(weight.shape(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(weight.type(), ElementType::Float32);
    EXPECT_TRUE(weight.contiguous());
}

TEST(File, BytesAtTheOffsetAreTheDataset) {
    const ScratchFolder folder;
    write_sample(folder / "a.h5");
    int64_t offset = 0;
    {
        const File file = File::open(folder / "a.h5");
        offset = file.open_dataset("model/norm/weight").offset();
    }
    std::string bytes = read_file(folder / "a.h5");
    EXPECT_EQ(std::memcmp(bytes.data() + offset, kValues.data(), 24), 0);

    const float changed = 42;  // and the other way round: HDF5 reads what others put there
    std::memcpy(bytes.data() + offset, &changed, sizeof(changed));
    write_file(folder / "b.h5", bytes);
    std::vector<float> values(kValues.size());
    const File file = File::open(folder / "b.h5");
    file.open_dataset("model/norm/weight").read(std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values[0], 42);
}

TEST(File, HasItsFinalLengthOnceClosedThoughNothingWasWritten) {
    const ScratchFolder folder;
    File file = File::create(folder / "a.h5");
    const std::array<int64_t, 1> shape = {1000};
    const int64_t offset = file.create_dataset("x", ElementType::Float64, shape).offset();
    file.close();
    EXPECT_GE(static_cast<int64_t>(std::filesystem::file_size(folder / "a.h5")), offset + 8000);
}

// The offset that HDF5 tells counts from the file's start, not from the user block's end.
TEST(File, LeavesTheUserBlockAlone) {
    const ScratchFolder folder;
    constexpr int64_t kUserBlock = 512;
    File file = File::create(folder / "a.h5", kUserBlock);
    int64_t offset = 0;
    {
        Dataset x = file.create_dataset("x", ElementType::Float32, kShape);
        x.write(std::as_bytes(std::span(kValues)));
        offset = x.offset();
    }
    file.close();
    std::string bytes = read_file(folder / "a.h5");
    EXPECT_EQ(std::memcmp(bytes.data() + offset, kValues.data(), 24), 0);
    EXPECT_EQ(bytes.find("HDF"), kUserBlock + 1);
    std::fill_n(bytes.begin(), kUserBlock, '#');
    write_file(folder / "b.h5", bytes);
    const File marked = File::open(folder / "b.h5");
    EXPECT_EQ(marked.open_dataset("x").offset(), offset);
}

std::vector<float> read_floats(const std::filesystem::path& path, const std::string& name) {
    const File file = File::open(path);
    const Dataset dataset = file.open_dataset(name);
    std::vector<float> values(dataset.num_elements());
    dataset.read(std::as_writable_bytes(std::span(values)));
    return values;
}

void write_floats(const std::filesystem::path& path, const std::vector<int64_t>& shape,
                  std::vector<float> values) {
    File file = File::create(path, 512);
    file.create_dataset("a/x%b", ElementType::Float32, shape).write(std::as_bytes(std::span(values)));
}

TEST(VirtualDataset, ShowsWhatItsSourcesHold) {
    const ScratchFolder folder;
    write_floats(folder / "left%b.h5", {2, 1}, {1, 2});
    write_floats(folder / "right.h5", {2, 2}, {3, 4, 5, 6});
    const std::vector<VirtualSource> sources = {
        {"left%b.h5", "a/x%b", {{0, 0}, {2, 1}}, {2, 1}, {{0, 0}, {2, 1}}},
        {"right.h5", "a/x%b", {{0, 1}, {2, 2}}, {2, 2}, {{0, 0}, {2, 2}}}};
    File::create(folder / "all.h5", 512).create_virtual_dataset("a/x", ElementType::Float32, kShape, sources);
    EXPECT_EQ(read_floats(folder / "all.h5", "a/x"), (std::vector<float>{1, 3, 4, 2, 5, 6}));

    std::filesystem::remove(folder / "left%b.h5");
    const std::vector<float> values = read_floats(folder / "all.h5", "a/x");
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[3]));
    EXPECT_EQ(values[4], 5);
}

TEST(VirtualDataset, MayBeAScalar) {
    const ScratchFolder folder;
    write_floats(folder / "one.h5", {}, {7});
    const std::vector<VirtualSource> sources = {{"one.h5", "a/x%b", {}, {}, {}}};
    File::create(folder / "all.h5").create_virtual_dataset("x", ElementType::Float32, {}, sources);
    EXPECT_EQ(read_floats(folder / "all.h5", "x"), (std::vector<float>{7}));
}

/// A view of slabs of another view of the same file: of 2 files x 3 elements, the last two of each and one of
/// one.
TEST(VirtualDataset, MayShowPartsOfAnotherView) {
    const ScratchFolder folder;
    write_floats(folder / "one.h5", {3}, {1, 2, 3});
    write_floats(folder / "two.h5", {2}, {4, 5});
    {
        File file = File::create(folder / "all.h5", 512);
        const std::vector<VirtualSource> files = {{"one.h5", "a/x%b", {{0, 0}, {1, 3}}, {3}, {{0}, {3}}},
                                                  {"two.h5", "a/x%b", {{1, 0}, {1, 2}}, {2}, {{0}, {2}}}};
        const std::vector<int64_t> shape = {2, 3}, square = {2, 2};
        file.create_virtual_dataset("elements", ElementType::Float32, shape, files);
        const std::vector<VirtualSource> slab = {
            {".", "elements", {{0, 0}, {2, 2}}, shape, {{0, 1}, {2, 2}}}};
        file.create_virtual_dataset("square", ElementType::Float32, square, slab);
        const std::vector<VirtualSource> one = {{".", "elements", {}, shape, {{1, 0}, {1, 1}}}};
        file.create_virtual_dataset("scalar", ElementType::Float32, {}, one);
    }
    const std::vector<float> square = read_floats(folder / "all.h5", "square");
    EXPECT_EQ((std::vector<float>{square[0], square[1], square[2]}), (std::vector<float>{2, 3, 5}));
    EXPECT_TRUE(std::isnan(square[3]));
    EXPECT_EQ(read_floats(folder / "all.h5", "scalar"), (std::vector<float>{4}));
}

TEST(VirtualDataset, ShowsMissingElementsAsNanOrZero) {
    const ScratchFolder folder;
    const std::array types = {ElementType::UInt8,    ElementType::Int64,   ElementType::Float16,
                              ElementType::BFloat16, ElementType::Float32, ElementType::Float64};
    for (const ElementType type : types) {
        const std::vector<VirtualSource> sources = {{"absent.h5", "x", {{0}, {3}}, {3}, {{0}, {3}}}};
        const std::array<int64_t, 1> shape = {3};
        File::create(folder / name(type)).create_virtual_dataset("x", type, shape, sources);
        const File file = File::open(folder / name(type));
        std::vector<std::byte> bytes(3 * size_bytes(type), std::byte{1});
        file.open_dataset("x").read(bytes);
        const uint64_t expected = missing_element(type);
        EXPECT_EQ(std::memcmp(bytes.data() + 2 * size_bytes(type), &expected, size_bytes(type)), 0)
            << name(type);
    }
    EXPECT_TRUE(std::isnan(std::bit_cast<double>(missing_element(ElementType::Float64))));
    EXPECT_TRUE(
        std::isnan(std::bit_cast<float>(static_cast<uint32_t>(missing_element(ElementType::Float32)))));
}

// Superblocks from version 3 on carry the mark "open for writing", which makes a crashed file unreadable.
TEST(File, CarriesNoMarkOfBeingWritten) {
    const ScratchFolder folder;
    write_sample(folder / "a.h5");
    constexpr int kSuperblockVersionAt = 8;
    EXPECT_LT(read_file(folder / "a.h5").at(kSuperblockVersionAt), 3);
}

TEST(File, ListsTheNamesOfAGroup) {
    const ScratchFolder folder;
    File file = File::create(folder / "a.h5");
    for (const char* name : {"b/two", "a", "b/one"}) file.create_dataset(name, ElementType::UInt16, kShape);
    EXPECT_EQ(file.links(), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(file.links("b"), (std::vector<std::string>{"one", "two"}));
    EXPECT_ERROR(file.links("c"), RunError, "a.h5", "'c'");
}

TEST(File, RefusesWhatItCannotOpen) {
    const ScratchFolder folder;
    EXPECT_ERROR(File::open(folder / "none.h5"), UserError, "none.h5", "No such file");
    EXPECT_ERROR(File::open(folder / ""), UserError, "it is a folder");
    ASSERT_EQ(::mkfifo((folder / "pipe.h5").c_str(), 0600), 0);
    EXPECT_ERROR(File::open(folder / "pipe.h5"), UserError, "pipe.h5", "not a regular file");
    write_file(folder / "text.h5", "not at all HDF5");
    EXPECT_ERROR(File::open(folder / "text.h5"), UserError, "text.h5", "not an HDF5 file");
    write_file(folder / "empty.h5", "");
    EXPECT_ERROR(File::open(folder / "empty.h5"), DamageError, "empty.h5 is truncated: it has 0 bytes");
    write_sample(folder / "a.h5");
    const std::string whole = read_file(folder / "a.h5");
    write_file(folder / "half.h5", whole.substr(0, whole.size() / 2));
    EXPECT_ERROR(File::open(folder / "half.h5"), DamageError, "half.h5 is truncated: it has",
                 "Copy or make it again");
    EXPECT_ERROR(File::create(folder / "none/a.h5"), RunError, "none/a.h5", "No such file");
}

TEST(File, RefusesDatasetsThatAreNotThere) {
    const ScratchFolder folder;
    write_sample(folder / "a.h5");
    const File file = File::open(folder / "a.h5");
    EXPECT_ERROR(file.open_dataset("tokens"), UserError, "a.h5", "'tokens'", "it holds: model");
    EXPECT_ERROR(file.open_dataset("no/such/group"), UserError, "'no/such/group'");
    EXPECT_ERROR(file.open_dataset("model"), UserError, "'model'", "not a dataset");
}

TEST(File, RefusesASecondDatasetOfAName) {
    const ScratchFolder folder;
    File file = File::create(folder / "a.h5");
    file.create_dataset("x", ElementType::UInt16, kShape);
    EXPECT_ERROR(file.create_dataset("x", ElementType::UInt16, kShape), RunError, "dataset 'x'", "exists");
}

// HDF5 tries again at exit, on what it has freed by then.
TEST(FileDeathTest, AFailedCloseDoesNotCrashAtExit) {
    const auto fill_disk_and_exit = [] {
        const ScratchFolder folder;
        File file = File::create(folder / "a.h5");
        file.create_dataset("x", ElementType::Float64, std::array<int64_t, 1>{1'000'000});
        const rlimit limit{100'000, RLIM_INFINITY};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        std::signal(SIGXFSZ, SIG_IGN);
        EXPECT_ERROR(file.close(), RunError, "a.h5", "cannot finish the file", "File too large");
        std::exit(testing::Test::HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(fill_disk_and_exit(), testing::ExitedWithCode(0), "");
}

TEST(File, SaysThatADatasetIsStillOpenWhenItCloses) {
    const ScratchFolder folder;
    File file = File::create(folder / "a.h5");
    const Dataset open = file.create_dataset("x", ElementType::UInt16, kShape);
    EXPECT_ERROR(file.close(), RunError, "a.h5", "cannot finish the file");
}

TEST(Dataset, TakesExactlyItsBytes) {
    const ScratchFolder folder;
    File file = File::create(folder / "a.h5");
    Dataset dataset = file.create_dataset("x", ElementType::Float32, kShape);
    EXPECT_ERROR(dataset.write(std::as_bytes(std::span(kValues).first(5))), RunError, "20 bytes", "24");
}

TEST(Dataset, WithoutElementsHasNoOffset) {
    const ScratchFolder folder;
    File file = File::create(folder / "a.h5");
    const Dataset dataset = file.create_dataset("x", ElementType::Float32, std::array<int64_t, 1>{0});
    EXPECT_EQ(dataset.num_elements(), 0);
    EXPECT_ERROR(dataset.offset(), RunError, "dataset 'x'");
}

TEST(Handle, ClosesExactlyOnce) {
    static int num_closed = 0;
    const auto count = [](int64_t) { return ++num_closed, 0; };
    {
        Handle first(7, count);
        Handle second(std::move(first));
        Handle third(8, count);
        third = std::move(second);
    }
    EXPECT_EQ(num_closed, 2);
}

}  // namespace
}  // namespace argosy::h5
