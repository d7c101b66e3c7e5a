// Files: what is read of them, and what is refused before anything is.
#include "interop/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "expect_error.h"
#include "interop/safetensors_files.h"
#include "scratch_folder.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using layout::Slab;

std::string entry(const std::string& name, int begin, int size) {
    return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(size) + R"(],"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(begin + size) + "]}";
}

std::vector<uint8_t> read(const Safetensors& file, const std::string& name, const Slab& slab) {
    const TensorInfo& tensor = file.at(name);
    std::vector<uint8_t> bytes(slab.num_elements() * size_bytes(tensor.type));
    file.read(tensor, slab, std::as_writable_bytes(std::span(bytes)));
    return bytes;
}

TEST(Safetensors, AnySlabIsTheCutOfTheWhole) {
    const ScratchFolder folder;
    const std::vector<int64_t> shape = {5, 3, 7, 2};
    write_file(folder / "x.safetensors",
               safetensors_bytes(R"({"w":{"dtype":"U8","shape":[5,3,7,2],"data_offsets":[3,213]},)" +
                                     entry("pad", 0, 3) + "}",
                                 213));
    const Safetensors file(folder / "x.safetensors");
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        Slab slab;
        for (const int64_t extent : shape) {
            const auto begin = static_cast<int64_t>(random() % extent);
            slab.offset.push_back(begin);
            slab.size.push_back(1 + static_cast<int64_t>(random() % (extent - begin)));
        }
        std::vector<uint8_t> expected;
        for (int64_t i = 0; i < 210; ++i) {
            const int64_t at[] = {i / 42, i / 14 % 3, i / 2 % 7, i % 2};
            bool inside = true;
            for (int dim = 0; dim < 4; ++dim) {
                inside &= at[dim] >= slab.offset[dim] && at[dim] < slab.offset[dim] + slab.size[dim];
            }
            if (inside) expected.push_back(static_cast<uint8_t>(3 + i));
        }
        EXPECT_EQ(read(file, "w", slab), expected);
    }
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
    const ScratchFolder folder;
    const std::vector<TensorInfo> tensors = {{"a", ElementType::Float32, {2, 3}},
                                             {"b", ElementType::BFloat16, {5}},
                                             {"c", ElementType::Float64, {}}};
    const auto bytes_of = [&](size_t i) {
        std::vector<uint8_t> bytes(tensors[i].num_bytes());
        for (size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<uint8_t>(31 * i + at);
        return bytes;
    };
    SafetensorsWriter writer(folder / "x.safetensors", tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {  // in two pieces, the later one first
        const auto bytes = bytes_of(i);
        const auto all = std::as_bytes(std::span(bytes));
        writer.write(i, 5, all.subspan(5));
        writer.write(i, 0, all.first(5));
    }
    writer.finish();
    const Safetensors file(folder / "x.safetensors");
    for (size_t i = 0; i < tensors.size(); ++i)
        EXPECT_EQ(read(file, tensors[i].name, layout::whole(tensors[i].shape)), bytes_of(i));
}

TEST(Safetensors, RefusesFilesThatAreNone) {
    const ScratchFolder folder;
    const auto path = folder / "x.safetensors";
    EXPECT_ERROR(Safetensors{path}, UserError, "x.safetensors", "No such file");
    write_file(path, "1234567");
    EXPECT_ERROR(Safetensors{path}, DamageError, "x.safetensors is truncated: it has 7 bytes");
    const std::string sound = safetensors_bytes("{" + entry("a", 0, 4) + "}", 4);
    write_file(path, sound);
    EXPECT_EQ(Safetensors{path}.tensors().size(), 1u);
    write_file(path, sound.substr(0, sound.size() - 1));
    EXPECT_ERROR(Safetensors{path}, DamageError, "is truncated", "tensor \"a\"", "beyond the file");
    write_file(path, sound + "x");
    EXPECT_ERROR(Safetensors{path}, DamageError, "1 bytes follow");
    write_file(path, sound.substr(0, 20));
    EXPECT_ERROR(Safetensors{path}, DamageError, "is truncated", "the file has 20 bytes");
    for (const char* length :
         {"\x01\xe1\xf5\x05\0\0\0\0", "\xff\xff\xff\xff\xff\xff\xff\xff", "\0\0\0\0\0\0\0\x80"}) {
        write_file(path, std::string(length, 8) + sound.substr(8));
        EXPECT_ERROR(Safetensors{path}, UserError, "header would have", "at most 100000000");
    }
    write_file(path, std::string("\0\xe1\xf5\x05\0\0\0\0", 8) + sound.substr(8));
    EXPECT_ERROR(Safetensors{path}, DamageError, "is truncated", "would end at byte 100000008");
    EXPECT_ERROR(Safetensors{folder / ""}, UserError, "model.safetensors");
}

TEST(Safetensors, AFileThatShrinksLaterIsTruncated) {
    const ScratchFolder folder;
    const auto path = folder / "x.safetensors";
    write_file(path, safetensors_bytes("{" + entry("a", 0, 100) + "}", 100));
    const Safetensors file(path);
    std::filesystem::resize_file(path, 90);
    EXPECT_ERROR(read(file, "a", {{0}, {100}}), DamageError, "x.safetensors is truncated: it has 90 bytes",
                 "Copy or make it again");
}

/// A folder with an index of that map, and the files one (a, b) and two (c).
struct Indexed {
    explicit Indexed(const std::string& map) {
        write_file(folder / "model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
        write_file(folder / "one.safetensors",
                   safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 4, 1) + "}", 5));
        write_file(folder / "two.safetensors", safetensors_bytes("{" + entry("c", 0, 2) + "}", 2));
    }
    Safetensors open() const { return Safetensors(folder / ""); }
    ScratchFolder folder;
};

TEST(Safetensors, SeveralFilesAreOneSource) {
    const Indexed files(R"({"c":"two.safetensors","a":"one.safetensors","b":"one.safetensors"})");
    const Safetensors source = files.open();
    ASSERT_EQ(source.tensors().size(), 3u);
    EXPECT_EQ(read(source, "b", {{0}, {1}}), std::vector<uint8_t>{4});
    EXPECT_EQ(read(source, "c", {{1}, {1}}), std::vector<uint8_t>{1});
}

TEST(Safetensors, RefusesAnIndexThatDoesNotFitItsFiles) {
    const auto open = [](const char* map) { Indexed(map).open(); };
    EXPECT_ERROR(open(R"({"a":"one.safetensors","b":"one.safetensors","c":"three.safetensors"})"), UserError,
                 "index.json", "tensor \"c\"", "\"three.safetensors\" is missing");
    EXPECT_ERROR(
        open(R"({"a":"one.safetensors","b":"one.safetensors","d":"two.safetensors","c":"two.safetensors"})"),
        UserError, "tensor \"d\" is not in its file two.safetensors");
    EXPECT_ERROR(open(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})"), UserError,
                 "tensor \"b\" is not in its file two.safetensors, but in");
    EXPECT_ERROR(open(R"({"a":"one.safetensors","c":"two.safetensors"})"), UserError, "tensor \"b\"",
                 "one.safetensors", "is not named");
    EXPECT_ERROR(open("{}"), UserError, "no tensor");

    Indexed twice(R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"})");
    write_file(twice.folder / "two.safetensors",
               safetensors_bytes("{" + entry("c", 0, 2) + "," + entry("b", 2, 1) + "}", 3));
    EXPECT_ERROR(twice.open(), UserError, "tensor \"b\" is in two files", "one.safetensors",
                 "two.safetensors");
}

TEST(Safetensors, TheSingleFileGoesBeforeAnIndexAsInTransformers) {
    const Indexed files(R"({"c":"two.safetensors","a":"one.safetensors","b":"one.safetensors"})");
    write_file(files.folder / "model.safetensors", safetensors_bytes("{" + entry("only", 0, 1) + "}", 1));
    EXPECT_EQ(files.open().tensors().size(), 1u);
}

}  // namespace
}  // namespace argosy::interop
