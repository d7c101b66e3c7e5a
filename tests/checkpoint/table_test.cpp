#include "checkpoint/table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/sample_tables.h"
#include "checkpoint/user_block.h"
#include "expect_error.h"

namespace argosy::checkpoint {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// The values are those of Python's xxhash.
TEST(Hash, IsXxh3Of128Bits) {
    EXPECT_EQ(hash_of("").hex(), "99aa06d3014798d86001c324468d497f");
    EXPECT_EQ(hash_of("abc").hex(), "06b05ab6733a618578af5f94892f3950");
    EXPECT_EQ(parse_hash("06b05ab6733a618578af5f94892f3950"), hash_of("abc"));
    for (const char* wrong : {"", "06b05ab6733a618578af5f94892f395", "06B05AB6733A618578AF5F94892F3950",
                              "06b05ab6733a618578af5f94892f395g", "06b05ab6733a618578af5f94892f39500"}) {
        EXPECT_FALSE(parse_hash(wrong)) << wrong;
    }
    Hasher hasher;
    for (const char c : std::string("abc")) hasher.add(std::as_bytes(std::span(&c, 1)));
    EXPECT_EQ(hasher.value(), hash_of("abc"));
}

TEST(UserBlock, IsReadAsItWasPrinted) {
    UserBlock block{.kind = FileKind::Manifest,
                    .num_bytes = kMax,
                    .table_at = 2048,
                    .table_bytes = 5310,
                    .table_hash = {1, 2},
                    .rest = {~0ULL, 3}};
    const std::string text = to_text(block);
    EXPECT_EQ(text.size(), kUserBlockBytes);
    EXPECT_TRUE(
        text.starts_with("argosy checkpoint 2.0\nkind manifest\nbytes 9223372036854775807\ntable 2048 5310 "
                         "00000000000000010000000000000002\nrest ffffffffffffffff0000000000000003\ncheck "));
    block.check = hash_of(text.substr(0, text.find("check ")));
    EXPECT_EQ(parse_user_block(text, "F"), block);
}

TEST(Table, IsParsedAsItWasPrinted) {
    const Manifest manifest = sample_manifest();
    EXPECT_EQ(parse_manifest(to_json(manifest), "F", kSampleFile), manifest);
    EXPECT_EQ(parse_manifest(to_json(manifest) + "  \n ", "F", kSampleFile), manifest);
    const Manifest joint = sample_joint_manifest();
    EXPECT_EQ(parse_manifest(to_json(joint), "F", kSampleFile), joint);
    EXPECT_TRUE(joint.plan.names_axes() && !manifest.plan.names_axes());
    const Manifest full = sample_full();
    EXPECT_EQ(parse_manifest(to_json(full), "F", kSampleFile), full);
    const ShardTable shard = sample_shard();
    EXPECT_EQ(parse_shard_table(to_json(shard), "F", kSampleFile), shard);
    EXPECT_EQ(parse_shard_table(to_json(ShardTable{}), "F", kSampleFile), ShardTable{});
    EXPECT_EQ(parse_plan(to_json(manifest.plan), "F"), manifest.plan);
    EXPECT_ERROR(parse_plan(R"({"grid":[0],"tensors":[]})", "F"), UserError,
                 "is not a valid grid of writers");
}

TEST(Table, HasALengthThatDoesNotDependOnItsHashes) {
    Manifest manifest = sample_full();
    const size_t length = to_json(manifest).size();
    for (StoredTensor& tensor : manifest.tensors) {
        for (StoredSlab& slab : tensor.slabs) slab.hash = {};
    }
    EXPECT_EQ(to_json(manifest).size(), length);
}

TEST(Table, HoldsTextInUtf8Alone) {
    Manifest manifest = sample_manifest();
    manifest.description.config = "caf\xe9";
    EXPECT_ERROR(to_json(manifest), UserError, "UTF-8");
}

/// The text with the first `from` made `to`.
std::string changed(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

TEST(Table, LeavesUnknownKeysAlone) {
    const std::string text = changed(to_json(sample_manifest()), "{\"set\"", R"({"later":[{"a":1}],"set")");
    EXPECT_EQ(parse_manifest(changed(text, "{\"name\"", R"({"later":{"a":[]},"name")"), "F", kSampleFile),
              sample_manifest());
}

struct Case {
    const char *from, *to, *fault;
};

// What JSON itself allows and a table does not.
TEST(Table, IsStrict) {
    const std::string full = to_json(sample_full()), step = to_json(sample_manifest());
    constexpr const char* kDeep = "deep";
    const std::string deep(200000, '[');
    for (const auto& [from, to, fault] : std::initializer_list<Case>{
             {"{\"set\"", "[\"set\"", "bad JSON"},
             {"\"step\":7", "\"step\":7,\"step\":8", "\"step\" occurs twice"},
             {"\"hidden\":64", "\"hidden\":64,\"hidden\":64", "\"hidden\" occurs twice"},
             {"\"step\":7", "\"step\":7.0", "\"step\" is 7.0"},
             {"\"step\":7", "\"step\":-7", "\"step\" is -7"},
             {"\"step\":7", "\"step\":9223372036854775808", "\"step\" is 9223372036854775808"},
             {"\"step\":7", "\"step\":99999999999999999999999", "\"step\" is"},
             {"\"step\":7", "\"step\":\"7\"", "\"step\" is \"7\""},
             {"\"step\":7", "\"stop\":7", "no \"step\""},
             {"\"mesh\":\"", "\"mesh\":\"\xff", "bad JSON"},
             {"\"model_only\":false", "\"model_only\":0", "not true or false"},
             {"\"model\":{", "\"model\":3,\"x\":{", "\"model\" is 3"},
             {"\"files\":[", "\"files\":[3,", "\"files\" holds 3"},
             {"\"files\":[", "\"files\":{\"a\":[", "bad JSON"},
             {"\"tensors\":[", "\"tensors\":3,\"x\":[", "\"tensors\" is 3"},
             {"\"tensors\":[", "\"tensors\":[[{}],", "\"tensors\" holds a list"},
             {"\"type\":\"f32\"", "\"type\":\"f31\"", "\"type\" is \"f31\""},
             {"\"shape\":[4,6]", "\"shape\":[4,6.5]", "\"shape[1]\" is 6.5"},
             {"\"file\":-1", "\"file\":-2", "\"slabs[0].file\" is -2"},
             {"\"file\":-1", "\"file\":-1.0", "\"slabs[0].file\" is -1.0"},
             {"\"file\":-1", "\"file\":4294967296", "\"slabs[0].file\" is 4294967296"},
             {"\"hash\":\"", "\"hash\":\"A", "32 lower-case"},
             {"\"model\":{", kDeep, "nested more than"},
         }) {
        const std::string& valid = std::string_view(from).starts_with("\"files\"") ? step : full;
        const std::string text = changed(valid, from, to == kDeep ? "\"model\":{\"d\":" + deep : to);
        EXPECT_ERROR(parse_manifest(text, "F.h5: its table", kSampleFile), UserError, "F.h5: its table",
                     fault);
    }
}

// The JSON library takes a zero byte for the text's end wherever a value could end, and leaves what follows.
TEST(Table, HoldsNoZeroByte) {
    const std::string manifest = to_json(sample_full()), shard = to_json(sample_shard());
    const auto with_zero = [](std::string text, size_t at) { return text.insert(at, 1, '\0'); };
    for (const std::string& rest : {std::string(), std::string("}"), std::string("{\"set\":1}")}) {
        EXPECT_ERROR(parse_manifest(with_zero(manifest, manifest.size()) + rest, "F", kSampleFile), UserError,
                     "F: ", "zero byte");
        EXPECT_ERROR(parse_shard_table(with_zero(shard, shard.size()) + rest, "F", kSampleFile), UserError,
                     "F: ", "zero byte");
    }
    for (size_t at = 0; at < manifest.size(); at += 7) {
        const auto line = std::ranges::count(manifest.substr(0, at), '\n') + 1;
        EXPECT_ERROR(parse_manifest(with_zero(manifest, at), "F", kSampleFile), UserError, "F: ",
                     line == 1 ? fmt::format("zero byte at byte {}", at + 1)
                               : fmt::format("zero byte at line {}, byte ", line));
    }
}

// What is well written and cannot be.
TEST(Table, IsAsItCanBe) {
    const std::string valid = to_json(sample_full());
    for (const auto& [from, to, fault] : std::initializer_list<Case>{
             {"\"offset\":[0,0]", "\"offset\":[1,0]", "not inside shape [4, 6]"},
             {"\"offset\":[0,0]", "\"offset\":[9223372036854775807,0]", "not inside shape"},
             {"\"offset\":[0,0]", "\"offset\":[0]", "not inside shape"},
             {"\"size\":[4,6]", "\"size\":[0,6]", "not inside shape"},
             {"\"size\":[4,6]", "\"size\":[2,6]",
              "[2, 6] of shape [4, 6]; in a full file each tensor is whole"},
             {"\"at\":512,", "\"at\":511,", "do not lie in a file of 2000"},
             {"\"at\":512,", "\"at\":1953,", "96 bytes at 1953 do not lie"},
             {"\"at\":512,", "\"at\":9223372036854775807,", "do not lie in a file of 2000"},
             {"\"at\":512,", "\"at\":640,", "two ranges overlap at byte 680"},
             {"\"shape\":[4,6]", "\"shape\":[4611686018427387904,4]", "has too many bytes"},
             {"\"shape\":[0,5]", "\"shape\":[0,9223372036854775807]", "has too many bytes"},
             {"\"name\":\"model/b\"", "\"name\":\"model/a\"", "tensor 'model/a': it is listed twice"},
             {"\"name\":\"model/b\"", "\"name\":\"model//b\"", "is not a path"},
             {"\"name\":\"model/b\"", "\"name\":\"/model\"", "is not a path"},
             {"\"name\":\"model/b\"", "\"name\":\"a/../b\"", "is not a path"},
             {"\"name\":\"model/b\"", "\"name\":\"\"", "is empty"},
             {"\"name\":\"model/b\"", "\"name\":\"a\\nb\"", "'a?b' holds a control character"},
             {"\"name\":\"model/b\"", "\"name\":\"table\"", "is reserved"},
             {"\"name\":\"model/b\"", "\"name\":\"assets/b\"", "is reserved"},
             {"\"name\":\"vocabulary\"", "\"name\":\"..\"", "is not a plain file name"},
             {"\"name\":\"vocabulary\"", "\"name\":\"merges\"", "'merges' is listed twice"},
             {"\"at\":700,\"bytes\":100", "\"at\":700,\"bytes\":9223372036854775807",
              "do not lie in a file of 2000"},
             {"\"at\":700,\"bytes\":100", "\"at\":700,\"bytes\":101", "two ranges overlap at byte 800"},
         }) {
        EXPECT_ERROR(parse_manifest(changed(valid, from, to), "F.h5: its table", kSampleFile), UserError,
                     "F.h5: its table", fault);
    }
}

TEST(Table, OfAPlanIsAsItCanBe) {
    const std::string valid = to_json(sample_manifest());
    for (const auto& [from, to, fault] : std::initializer_list<Case>{
             {"\"grid\":[2,2]", "\"grid\":[2,0]", "[2, 0] is not a valid grid of writers"},
             {"\"grid\":[2,2]", "\"grid\":[2,4]", "another number of writers than its 4 files"},
             {"\"grid\":[2,2]", "\"grid\":[2,2,1]", "has cuts that do not fit the grid [2, 2, 1]"},
             {"\"grid\":[2,2]", "\"grid\":[2147483647,2147483646]", "is not a valid grid of writers"},
             {"\"grid\":[2,2]", "\"grid\":[2147483648,2]", "\"grid[0]\" is 2147483648"},
             {"\"grid\":[2,2]", "\"grid\":[]", "its \"grid\" is empty"},
             {"\"grid\":[2,2]", "\"greed\":[2,2]", "without a grid"},
             {"\"cuts\":[[1,2,0]", "\"cuts\":[[2,2,0]",
              "tensor 'model/a' of shape [4, 6] has cuts that do not fit the grid"},
             {"\"cuts\":[[1,2,0]", "\"cuts\":[[1,2,1]", "tensor 'model/a'"},
             {"\"cuts\":[[1,2,0]", "\"cuts\":[[1,0,0]", "tensor 'model/a'"},
             {"\"cuts\":[[1,2,0]", "\"cuts\":[[1,2]", "a list of [dim, parts, first]"},
             {"\"cuts\":[[1,2,0]", "\"cuts\":[[1,-2,0]", "\"cuts[0][1]\" is -2"},
             {"\"cuts\":[[1,2,0]", "\"cuts\":[1", "\"cuts[0]\" is 1"},
             {"\"cuts\":[[1,2,0],[0,2,0]]", "\"slabs\":[]", "its slab is not given"},
             {"{\"bytes\":1000", "{\"bytes\":100", "at least 512"},
             {"\"name\":\"model/b\"", "\"name\":\"model/a\"", "listed twice"},
             {"\"name\":\"model/b\"", "\"name\":\"elements/b\"", "is reserved"},
         }) {
        EXPECT_ERROR(parse_manifest(changed(valid, from, to), "F.h5: its table", kSampleFile), UserError,
                     "F.h5: its table", fault);
    }
    Manifest fewer = sample_manifest();
    fewer.files.pop_back();
    EXPECT_ERROR(parse_manifest(to_json(fewer), "F", kSampleFile), UserError,
                 "another number of writers than its 3");
}

TEST(Table, OfAJointPlanIsAsItCanBe) {
    const std::string valid = to_json(sample_joint_manifest());
    constexpr const char *kFirst = "\"cuts\":[[1,4,0,[0,1]]]",
                         *kSecond = "\"cuts\":[[0,1,1,[1]],[0,1,1,[0]]]";
    for (const auto& [from, to, fault] : std::initializer_list<Case>{
             {kFirst, "\"cuts\":[[1,2,0,[0,0]]]",
              "tensor 'model/a' of shape [4, 6] has cuts that do not fit the grid [2, 2]: axis 0 is named "
              "twice"},
             {kFirst, "\"cuts\":[[1,4,0,[0,1]],[0,2,0,[1]]]", "grid [2, 2]: axis 1 is named twice"},
             {kFirst, "\"cuts\":[[1,4,0,[1,0]]]", "grid [2, 2]: the axes [1, 0] do not ascend"},
             {kFirst, "\"cuts\":[[1,4,0,[0,2]]]", "grid [2, 2]: there is no axis 2"},
             {kFirst, "\"cuts\":[[1,4,0,[0,2147483647]]]", "grid [2, 2]: there is no axis 2147483647"},
             {kFirst, "\"cuts\":[[1,2,0,[1]]]", "grid [2, 2]: no cut names axis 0"},
             {kFirst, "\"cuts\":[[1,8,0,[0,1]]]", "grid [2, 2]: cut 0 is [1, 8, 0]"},
             {kFirst, "\"cuts\":[[1,3,0,[0,1]]]", "grid [2, 2]: cut 0 is [1, 3, 0]"},
             {kFirst, "\"cuts\":[[1,2,2,[0,1]]]", "grid [2, 2]: cut 0 is [1, 2, 2]"},
             {kFirst, "\"cuts\":[[2,4,0,[0,1]]]", "grid [2, 2]: cut 0 is [2, 4, 0]"},
             {kFirst, "\"cuts\":[[1,4,0]]", "grid [2, 2]: of 1 cuts 0 name axes"},
             {kFirst, "\"cuts\":[[1,4,0,[]]]", "\"cuts[0][3]\" is empty"},
             {kFirst, "\"cuts\":[[1,4,0,1]]", "\"cuts[0][3]\" is 1"},
             {kFirst, "\"cuts\":[[1,4,0,[-1]]]", "\"cuts[0][3][0]\" is -1"},
             {kFirst, "\"cuts\":[[1,4,0,[0,1],0]]", "a list of [dim, parts, first]"},
             {kFirst, "\"cuts\":[]", "grid [2, 2]: of 0 cuts 0 name axes"},
             {kSecond, "\"cuts\":[[0,1,1,[1]],[0,1,1]]", "grid [2, 2]: of 2 cuts 1 name axes"},
             {kSecond, "\"cuts\":[[0,1,2,[1]],[0,1,1,[0]]]", "grid [2, 2]: cut 0 is [0, 1, 2]"},
         }) {
        EXPECT_ERROR(parse_manifest(changed(valid, from, to), "F.h5: its table", kSampleFile), UserError,
                     "F.h5: its table", fault);
    }
}

TEST(Table, OfAFullFileHasWholeTensors) {
    const std::string valid = to_json(sample_full());
    EXPECT_ERROR(parse_manifest(changed(valid, "\"file\":-1", "\"file\":0"), "F", kSampleFile), UserError,
                 "its slab names file 0");
    Manifest halves = sample_full();
    halves.tensors[0].slabs = {{.slab = {{0, 0}, {2, 6}}, .at = 512}, {.slab = {{2, 0}, {2, 6}}, .at = 600}};
    EXPECT_ERROR(parse_manifest(to_json(halves), "F", kSampleFile), UserError, "2 slabs");
}

TEST(Table, OfAShardIsAsItCanBe) {
    const std::string valid = to_json(sample_shard());
    for (const auto& [from, to, fault] : std::initializer_list<Case>{
             {"\"tensor\":\"model/b\"", "\"tensor\":\"model/a\"", "listed twice"},
             {"\"offset\":[2,0]", "\"offset\":[3,0]", "not inside shape"},
             {"\"at\":600,", "\"at\":1953,", "do not lie"},
             {"\"at\":600,", "\"as\":600,", "its slab is not given"},
             {"\"set\":\"", "\"set\":\"_", "\"set\" is"},
         }) {
        EXPECT_ERROR(parse_shard_table(changed(valid, from, to), "F", kSampleFile), UserError, fault);
    }
}

TEST(Table, LeavesGapsBetweenWhatItLists) {
    EXPECT_EQ(gaps({{600, 10}, {512, 8}, {610, 90}, {555, 0}}, "F", 1000),
              (std::vector<ByteRange>{{520, 80}, {700, 300}}));
    EXPECT_EQ(gaps({}, "F", 512), std::vector<ByteRange>());
    EXPECT_ERROR(gaps({{600, 401}}, "F", 1000), UserError, "1000 bytes", "1001");
}

}  // namespace
}  // namespace argosy::checkpoint
