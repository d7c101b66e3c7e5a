#include "h5/element_type.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "h5/file.h"
#include "scratch_folder.h"

namespace argosy::h5 {
namespace {

constexpr std::array kAll = {ElementType::UInt8,   ElementType::UInt16,  ElementType::UInt32,
                             ElementType::Int64,   ElementType::Float16, ElementType::BFloat16,
                             ElementType::Float32, ElementType::Float64};

TEST(ElementType, IsFoundAgainInAFile) {
    const ScratchFolder folder;
    std::set<std::string> names;
    for (const ElementType type : kAll) {
        names.insert(name(type));
        File::create(folder / name(type)).create_dataset("x", type, std::array<int64_t, 1>{3});
        const File file = File::open(folder / name(type));
        EXPECT_EQ(file.open_dataset("x").type(), type) << name(type);
        EXPECT_EQ(element_type(file_type(type)), type) << name(type);
        EXPECT_EQ(element_type_named(name(type)), type);
    }
    EXPECT_EQ(names.size(), kAll.size());
    EXPECT_FALSE(element_type_named("f8"));
}

// Raw bits pass through HDF5 unchanged: a NaN with payload, the largest number, a denormal.
TEST(ElementType, Bf16KeepsItsBits) {
    const ScratchFolder folder;
    const std::vector<uint16_t> bits = {0x3f80, 0x7fa5, 0x7f7f, 0x0001, 0x8000};
    {
        File file = File::create(folder / "a.h5");
        file.create_dataset("x", ElementType::BFloat16, std::array<int64_t, 1>{5})
            .write(std::as_bytes(std::span(bits)));
    }
    std::vector<uint16_t> read(bits.size());
    const File file = File::open(folder / "a.h5");
    file.open_dataset("x").read(std::as_writable_bytes(std::span(read)));
    EXPECT_EQ(read, bits);
}

}  // namespace
}  // namespace argosy::h5
