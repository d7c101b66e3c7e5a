#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "expect_error.h"
#include "h5/file.h"
#include "scratch_folder.h"

namespace argosy::h5 {
namespace {

constexpr std::array<int64_t, 1> kAttributeShape = {4};

TEST(Attribute, ComesBackFromFilesAndDatasets) {
    const ScratchFolder folder;
    {
        File file = File::create(folder / "a.h5");
        file.set_attribute("step", int64_t{-1} << 62);
        Dataset dataset = file.create_dataset("x", ElementType::UInt16, kAttributeShape);
        dataset.set_attribute("name", "gr\xc3\xbcn");
        dataset.set_attribute("nothing", "");
    }
    const File file = File::open(folder / "a.h5");
    const Dataset dataset = file.open_dataset("x");
    EXPECT_EQ(file.integer_attribute("step"), int64_t{-1} << 62);
    EXPECT_EQ(dataset.string_attribute("name"), "gr\xc3\xbcn");
    EXPECT_EQ(dataset.string_attribute("nothing"), "");
}

TEST(Attribute, ErrorsNameFileDatasetAndAttribute) {
    const ScratchFolder folder;
    File file = File::create(folder / "a.h5");
    Dataset dataset = file.create_dataset("x", ElementType::UInt16, kAttributeShape);
    dataset.set_attribute("count", int64_t{3});
    dataset.set_attribute("name", "three");
    EXPECT_ERROR(dataset.integer_attribute("absent"), UserError, "a.h5", "dataset 'x'", "'absent'");
    EXPECT_ERROR(dataset.integer_attribute("name"), UserError, "'name'", "not an integer");
    EXPECT_ERROR(dataset.string_attribute("count"), UserError, "'count'", "not a string");
    EXPECT_ERROR(dataset.set_attribute("count", int64_t{4}), RunError, "'count'");
}

}  // namespace
}  // namespace argosy::h5
