#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/error.h"
#include "expect_error.h"
#include "pytorch/pickle_reader.h"
#include "pytorch/pickle_writer.h"

namespace argosy::pytorch {
namespace {

using namespace std::string_literals;

Pickle read(const std::string& bytes, KnownClasses more_classes = {}) {
    return Pickle(std::as_bytes(std::span(bytes)), "F", more_classes);
}

TEST(Pickle, HasTheNumbersOfEachOpcode) {
    // pickle.dumps([None, True, False, 200, 60000, -5, 1 << 40, -1, 0, 0.5, ...], 2) by hand
    const Pickle pickle = read(
        "\x80\x02](N\x88\x89K\xc8M\x60\xeaJ\xfb\xff\xff\xff"
        "\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x01\xff\x8a\x00"
        "\x8b\x02\x00\x00\x00\x00\x80G\x3f\xe0\x00\x00\x00\x00\x00\x00"
        "e."s);
    const std::span<const Value> items = pickle.root().items();
    ASSERT_EQ(items.size(), 11U);
    EXPECT_TRUE(items[0].is_none());
    EXPECT_EQ(items[1].boolean(), true);
    EXPECT_EQ(items[2].boolean(), false);
    const std::vector<int64_t> integers = {200, 60000, -5, int64_t{1} << 40, -1, 0, -32768};
    for (size_t i = 0; i < integers.size(); ++i) EXPECT_EQ(items[i + 3].integer(), integers[i]);
    EXPECT_EQ(items[10].number(), 0.5);
    EXPECT_EQ(items[3].text(), nullptr);
    EXPECT_EQ(items[1].integer(), std::nullopt);
}

TEST(Pickle, HasTextsBytesAndContainers) {
    const Pickle pickle = read(
        "\x80\x04\x95\x01\x00\x00\x00\x00\x00\x00\x00}\x94("
        "\x8c\x01"
        "a\x94X\x02\x00\x00\x00xy"
        "\x8d\x01\x00\x00\x00\x00\x00\x00\x00"
        "bC\x02\x00\xff"
        "h\x01(K\x01K\x02\x86)\x85tu."s);
    const Value root = pickle.root();
    ASSERT_EQ(root.entries().size(), 3U);
    EXPECT_EQ(*root.find("b")->bytes(), "\x00\xff"s);
    const std::span<const Value> last = root.find("a")->items();  // the later of two
    ASSERT_EQ(last.size(), 2U);
    EXPECT_EQ(last[0].sizes(), (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(last[1].sizes(), std::nullopt);
    EXPECT_EQ(root.find("c"), nullptr);
}

TEST(Pickle, ClassesAndCallsBecomeData) {
    const Pickle pickle = read(
        "\x80\x02(ctorch\nSize\nK\x02K\x03\x86\x85Rccollections\nOrderedDict\n)R"
        "X\x01\x00\x00\x00kK\x01s"
        "c_codecs\nencode\nX\x03\x00\x00\x00z\xc3\xbfX\x06\x00\x00\x00latin1\x86R"
        "\x8c\x07pathlib\x8c\x09PosixPath\x93X\x01\x00\x00\x00p\x85R"
        "ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}X\x01\x00\x00\x00vN"
        "sbctorch\nfloat32\nK\x07Qt."s);
    const std::span<const Value> items = pickle.root().items();
    ASSERT_EQ(items.size(), 7U);
    EXPECT_EQ(items[0].sizes(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(items[1].find("k")->integer(), 1);
    EXPECT_EQ(*items[2].bytes(), "z\xff");
    EXPECT_EQ(items[3].class_name(), "pathlib.PosixPath");
    EXPECT_EQ(*items[3].arguments().front().text(), "p");
    EXPECT_TRUE(items[4].find("v")->is_none());
    EXPECT_EQ(items[4].shown(), "an object of torch.distributed.checkpoint.metadata.Metadata");
    EXPECT_EQ(items[5].kind(), Value::Kind::Class);
    EXPECT_EQ(items[6].persistent_id().integer(), 7);
}

TEST(Pickle, ClassesThatAreNotListedAreRefusedByName) {
    EXPECT_ERROR(read("\x80\x02"
                      "cposix\nsystem\nX\x02\x00\x00\x00ls\x85R."s),
                 UserError, "F", "\"posix.system\"", "state_dict()");
    EXPECT_ERROR(read("\x80\x04\x8c\x02os\x8c\x06system\x93."s), UserError, "os.system");
    const auto more = std::to_array<std::string_view>({"megatron.Metadata"});
    EXPECT_EQ(read("\x80\x02"
                   "cmegatron\nMetadata\n."s,
                   more)
                  .root()
                  .class_name(),
              "megatron.Metadata");
}

TEST(Pickle, WhatIsNotSupportedIsRefused) {
    EXPECT_ERROR(read("\x80\x02\x8f."s), UserError, "0x8f", "byte 2");
    EXPECT_ERROR(read("\x80\x02I5\n."s), UserError, "0x49");
    EXPECT_ERROR(read("\x80\x06N."s), UserError, "protocol 6");
    EXPECT_ERROR(read("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."s), UserError,
                 "an integer of 9 bytes");
}

TEST(Pickle, FaultsAreNamed) {
    const std::vector<std::pair<std::string, const char*>> faults = {
        {"N", "lacks its end"},
        {"X\xff\xff\xff\xffx.", "lacks its end"},
        {"ctorch\nSize", "lacks its end"},
        {".", "the stack is empty"},
        {"NN.", "values are left"},
        {"(N.", "values are left"},
        {"]K\x01u.", "a mark is missing"},
        {"K\x01(K\x02"s + "a.", "the stack is empty"},
        {"}(K\x01u.", "has no value"},
        {"K\x01K\x02"s + "a.", "no list"},
        {"]K\x01K\x02s.", "no dict"},
        {"h\x05.", "lacks a value"},
        {"Nr\xff\xff\xff\x7f.", "too large"},
        {"K\x01)R.", "no class"},
        {"ctorch\nSize\nK\x01R.", "no class"},
        {"ctorch\nSize\n)R.", "torch.Size has no tuple"},
        {"K\x01}b.", "no object"},
        {"K\x01K\x02\x93.", "a class has no name"},
        {"c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1\x86R."s, "latin1"},
    };
    for (const auto& [bytes, fault] : faults)
        EXPECT_ERROR(read("\x80\x02" + bytes), DamageError, "F is damaged", fault);
}

TEST(Pickle, SharedValuesTakeNoMemoryOfTheirOwn) {
    // Each list holds the one before it twice: 2^200 values if they were copied.
    std::string bytes = "\x80\x04]\x94";
    for (int level = 0; level < 200; ++level)
        bytes += "0]\x94(h"s + static_cast<char>(level) + "h" + static_cast<char>(level) + "e";
    const Pickle pickle = read(bytes + ".");
    EXPECT_EQ(pickle.root().items().size(), 2U);
}

int64_t peak_memory_bytes() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return int64_t{usage.ru_maxrss} * 1024;
}

TEST(Pickle, SharedArgumentsTakeNoMemoryOfTheirOwn) {
    constexpr size_t kCount = 8000;
    std::string bytes =
        "\x80\x02" + "cpathlib\nPosixPath\nq\x01"s + "0(" + std::string(kCount, 'N') + "tq\x02" + "0(";
    for (size_t call = 0; call < kCount; ++call) bytes += "h\x01h\x02R";
    const int64_t before = peak_memory_bytes();
    const Pickle pickle = read(bytes + "t.");
    EXPECT_EQ(pickle.root().items().size(), kCount);
    EXPECT_EQ(pickle.root().items().back().arguments().size(), kCount);
    EXPECT_LT(peak_memory_bytes() - before, 100 << 20);  // copies would have 1 GB
}

TEST(Pickle, ATextIsNotEncodedAgainAndAgain) {
    const std::string text(10000, 'a'), call = "h\x01h\x02R";
    const std::string bytes = "\x80\x02" + "c_codecs\nencode\nq\x01"s + "0X\x10\x27\0\0"s + text +
                              "X\x06\0\0\0latin1\x86q\x02"s + "0(";
    EXPECT_EQ(*read(bytes + call + "t.").root().items()[0].bytes(), text);
    EXPECT_ERROR(read(bytes + call + call + "t."), DamageError, "it encodes a text too often");
}

TEST(Pickle, TheWritersObjectsComeBack) {
    const Object object{ObjectDict{
        {"list", {ObjectList{{int64_t{5}}, {int64_t{-1} << 40}, {0.25}, {true}, {}, {std::string("t")}}}},
        {"tuple", {ObjectTuple{{{int64_t{1}}}}}},
        {"dict", {ObjectDict{}}},
    }};
    const Pickle pickle = read(PickleWriter().object(object).finish());
    const std::span<const Value> list = pickle.root().find("list")->items();
    ASSERT_EQ(list.size(), 6U);
    EXPECT_EQ(list[0].integer(), 5);
    EXPECT_EQ(list[1].integer(), int64_t{-1} << 40);
    EXPECT_EQ(list[2].number(), 0.25);
    EXPECT_EQ(list[3].boolean(), true);
    EXPECT_TRUE(list[4].is_none());
    EXPECT_EQ(*list[5].text(), "t");
    EXPECT_EQ(pickle.root().find("tuple")->sizes(), (std::vector<int64_t>{1}));
    EXPECT_EQ(pickle.root().find("dict")->kind(), Value::Kind::Dict);
    EXPECT_EQ(read(PickleWriter().size(std::vector<int64_t>{3, 4}).finish()).root().sizes(),
              (std::vector<int64_t>{3, 4}));
}

}  // namespace
}  // namespace argosy::pytorch
