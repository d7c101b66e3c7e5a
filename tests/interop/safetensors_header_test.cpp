// Headers that are sound, and every way in which one can lie.
#include "interop/safetensors_header.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "interop/safetensors.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;

std::vector<SafetensorsEntry> parse(const std::string& text, int64_t data_bytes) {
    return parse_safetensors_header(text, data_bytes, "F.safetensors");
}

TEST(SafetensorsHeader, EveryTypeAndShape) {
    const std::vector<SafetensorsEntry> expected = {
        {{"g", ElementType::Int64, {}}, 0},        {{"c", ElementType::Float64, {1}}, 8},
        {{"b", ElementType::Float32, {2, 3}}, 16}, {{"h", ElementType::UInt32, {1}}, 40},
        {{"d", ElementType::BFloat16, {3}}, 44},   {{"e", ElementType::Float16, {1, 1}}, 50},
        {{"a", ElementType::UInt16, {4, 0}}, 52},  {{"f", ElementType::UInt16, {2}}, 52},
        {{"i", ElementType::UInt8, {3}}, 56}};
    const std::string text = R"({"a":{"dtype":"U16","shape":[4,0],"data_offsets":[52,52]},
        "b":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]}, "__metadata__":{"format":"pt","":"x"},
        "c":{"shape":[1],"dtype":"F64","data_offsets":[8,16]},    "d":{"dtype":"BF16","shape":[3],"data_offsets":[44,50]},
        "e":{"dtype":"F16","shape":[1,1],"data_offsets":[50,52]}, "f":{"dtype":"U16","shape":[2],"data_offsets":[52,56]},
        "g":{"dtype":"I64","shape":[],"data_offsets":[0,8]},      "h":{"dtype":"U32","shape":[1],"data_offsets":[40,44]},
        "i":{"dtype":"U8","shape":[3],"data_offsets":[56,59]}}   )";
    EXPECT_EQ(parse(text, 59), expected);
    EXPECT_EQ(parse("{}", 0).size(), 0u);
    EXPECT_EQ(parse(R"({"__metadata__":{}})", 0).size(), 0u);
}

TEST(SafetensorsHeader, WhatIsLaidOutReadsBack) {
    const std::vector<TensorInfo> tensors = {{"b", ElementType::BFloat16, {3, 5}},
                                             {"a", ElementType::BFloat16, {7}},
                                             {"z \"\n\u00e9", ElementType::Int64, {1, 2}},
                                             {"f", ElementType::Float32, {}}};
    const SafetensorsLayout layout = lay_out_safetensors(tensors);
    const std::string header = layout.start.substr(8);
    EXPECT_EQ(header.size() % 8, 0u);
    EXPECT_EQ(static_cast<unsigned char>(layout.start[0]) + 256 * static_cast<unsigned char>(layout.start[1]),
              header.size());
    EXPECT_TRUE(header.starts_with(R"({"__metadata__":{"format":"pt"},"z)"));
    const auto entries = parse(header, 30 + 14 + 16 + 4);
    ASSERT_EQ(entries.size(), tensors.size());
    const size_t order[] = {2, 3, 1, 0};  // wide types first, then names
    for (size_t i = 0; i < entries.size(); ++i) {
        EXPECT_EQ(entries[i].info, tensors[order[i]]);
        EXPECT_EQ(entries[i].at + std::ssize(layout.start), layout.at[order[i]]);
    }
}

struct Lie {
    std::string text;
    int64_t data_bytes;
    std::vector<std::string> message;
};

void expect_refused(const std::vector<Lie>& lies) {
    for (const Lie& lie : lies) {
        SCOPED_TRACE(lie.text);
        try {
            parse(lie.text, lie.data_bytes);
            ADD_FAILURE() << "accepted";
        } catch (const UserError& error) {
            expect_message(error.what(), {"F.safetensors"});
            expect_message(error.what(), lie.message);
        }
    }
}

/// One tensor "a" of 8 bytes with something else in place of one field.
std::string with(const std::string& field, const std::string& value) {
    std::string text = "{\"a\":{";
    for (const auto& [name, good] :
         {std::pair{"dtype", "\"F32\""}, {"shape", "[2]"}, {"data_offsets", "[0,8]"}}) {
        text += (name == std::string("dtype") ? "\"" : ",\"") + std::string(name) +
                "\":" + (field == name ? value : good);
    }
    return text + "}}";
}

TEST(SafetensorsHeader, RefusesWhatDoesNotCoverTheFile) {
    const auto two = [](const char* first, const char* second) {
        return std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + first +
               R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
    };
    EXPECT_EQ(parse(two("[0,4]", "[4,8]"), 8).size(), 2u);
    EXPECT_EQ(parse(two("[4,8]", "[0,4]"), 8).size(), 2u);
    expect_refused({
        {two("[0,4]", "[3,7]"), 7, {"tensor \"b\"", "byte 3", "overlap"}},
        {two("[0,4]", "[0,4]"), 4, {"tensor \"b\"", "overlap"}},
        {two("[0,4]", "[5,9]"), 9, {"tensor \"b\"", "byte 5", "belong to no tensor"}},
        {two("[1,5]", "[5,9]"), 9, {"tensor \"a\"", "belong to no tensor"}},
        {two("[0,4]", "[4,8]"), 7, {"tensor \"b\"", "beyond the file", "7"}},
        {two("[0,4]", "[4,8]"), 10, {"end at byte 8", "2 bytes follow"}},
        {"{}", 1, {"1 bytes follow"}},
        {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[5,5]}})",
         8,
         {"tensor \"b\"", "overlap"}},
        {with("data_offsets", "[8,0]"), 8, {"begins at byte 8, after its end"}},
        {with("data_offsets", "[0,4]"), 4, {"tensor \"a\"", "f32", "[2]", "are 8 bytes", "leave 4"}},
        {with("data_offsets", "[0,9223372036854775807]"), 8, {"leave 9223372036854775807"}},
    });
}

TEST(SafetensorsHeader, RefusesNumbersThatAreNone) {
    expect_refused({
        {with("shape", "[-2]"), 8, {"tensor \"a\": \"shape\"", "-2 is negative"}},
        {with("shape", "[2.0]"), 8, {"2.0 is not a whole number"}},
        {with("shape", "[2e0]"), 8, {"2.0 is not a whole number"}},
        {with("shape", "[18446744073709551616]"), 8, {"not a whole number, or too large"}},
        {with("shape", "[9223372036854775808]"), 8, {"9223372036854775808 is too large"}},
        {with("shape", "[4611686018427387904,4]"), 8, {"too many elements"}},
        {with("shape", "[3037000500,3037000500,0]"), 8, {"too many elements"}},
        {with("shape", "[4611686018427387905]"), 4, {"too many elements"}},
        {with("shape", "[\"2\"]"), 8, {"\"2\" does not belong"}},
        {with("shape", "[[2]]"), 8, {"a list does not belong"}},
        {with("shape", "[null]"), 8, {"null does not belong"}},
        {with("shape", "2"), 8, {"2 does not belong"}},
        {with("shape", "{}"), 8, {"an object does not belong"}},
        {with("data_offsets", "[0,8,8]"), 8, {"\"data_offsets\" are 3 numbers"}},
        {with("data_offsets", "[8]"), 8, {"\"data_offsets\" are 1 numbers"}},
        {with("data_offsets", "[]"), 8, {"\"data_offsets\" are 0 numbers"}},
        {with("data_offsets", "[-0,8]"), 8, {"negative"}},
    });
    std::string dims = "[1";
    for (int i = 0; i < 64; ++i) dims += ",1";
    expect_refused({{with("shape", dims + "]"), 4, {"more than 64 numbers"}}});
}

TEST(SafetensorsHeader, RefusesWhatIsNoHeader) {
    expect_refused({
        {" {}", 0, {"begins with \" \""}},
        {"", 0, {"begins with \"\""}},
        {"[]", 0, {"begins with \"[\""}},
        {"\xef\xbb\xbf{}", 0, {"begins with"}},
        {"{", 0, {"bad JSON at byte"}},
        {"{}{}", 0, {"bad JSON at byte 3"}},
        {std::string("{}\0", 3), 0, {"a zero byte"}},
        {R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
         4,
         {"\"a\" occurs twice"}},
        {R"({"__metadata__":{},"__metadata__":{}})", 0, {"\"__metadata__\" occurs twice"}},
        {R"({"__metadata__":{"a":"b","a":"b"}})", 0, {"\"a\" occurs twice"}},
        {R"({"__metadata__":{"a":5}})", 0, {"\"__metadata__\"", "5 does not belong"}},
        {R"({"__metadata__":{"a":{}}})", 0, {"an object does not belong"}},
        {R"({"__metadata__":"pt"})", 0, {"\"pt\" does not belong"}},
        {R"({"a":5})", 0, {"tensor \"a\"", "5 does not belong"}},
        {R"({"a":[]})", 0, {"tensor \"a\"", "a list does not belong"}},
        {R"({"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})",
         4,
         {"\"dtype\" occurs twice"}},
        {R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "\"dtype\" is missing"}},
        {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"\"shape\" is missing"}},
        {R"({"a":{"dtype":"F32","shape":[]}})", 4, {"\"data_offsets\" is missing"}},
        {R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":1}})", 4, {"\"more\" is not a key"}},
        {with("dtype", "\"F8_E4M3\""), 8, {"tensor \"a\"", "\"F8_E4M3\" are not supported", "BF16"}},
        {with("dtype", "\"f32\""), 8, {"\"f32\" are not supported"}},
        {with("dtype", "[\"F32\"]"), 8, {"a list does not belong"}},
        {with("dtype", "4"), 8, {"4 does not belong"}},
        {"{\"\xff\":{}}", 0, {"bad JSON"}},
        {std::string("{\"a\":{\"shape\":") + std::string(100000, '['), 0, {"nested more than 100 deep"}},
    });
}

TEST(SafetensorsHeader, MessagesAreOneLineWhateverANameHolds) {
    const std::string name(5000, 'x');
    expect_refused({{R"({"a\nb)" + name + R"(":5})", 0, {"a\\nbxxx", "..."}}});
}

std::map<std::string, std::string> parse_index(const std::string& text) {
    return parse_weights_index(text, "F.json");
}

TEST(SafetensorsIndex, TheMapIsReadAndTheRestPassedOver) {
    const std::map<std::string, std::string> expected = {{"a", "x.safetensors"}, {"b", "y.safetensors"}};
    EXPECT_EQ(
        parse_index(R"({"metadata":{"total_size":1e9,"more":[1,{"weight_map":{"c":"d"}},null,true,-1,"s"]},
        "weight_map":{"a":"x.safetensors","b":"y.safetensors"},"other":3})"),
        expected);
    EXPECT_EQ(parse_index(safetensors_index_json(expected, 12)), expected);
}

TEST(SafetensorsIndex, RefusesWhatIsNoIndex) {
    struct Case {
        const char *text, *message;
    };
    for (const auto& [text, message] : {
             Case{"{}", "\"weight_map\" is missing"},
             Case{"[]", "a list does not belong"},
             Case{R"({"weight_map":[]})", "F.json: \"weight_map\": a list does not belong"},
             Case{R"({"weight_map":"x"})", "F.json: \"weight_map\": \"x\" does not belong"},
             Case{R"({"weight_map":{"a":5}})",
                  "F.json: \"weight_map\": tensor \"a\": its file is 5, which is"},
             Case{R"({"weight_map":{"a":{}}})", "tensor \"a\": its file is an object"},
             Case{R"({"weight_map":{"a":["x.safetensors"]}})", "tensor \"a\": its file is a list"},
             Case{R"({"weight_map":{"a":null}})", "tensor \"a\": its file is null"},
             Case{R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})",
                  "the key \"a\" occurs twice; the second is at byte 38"},
             Case{R"({"weight_map":{},"weight_map":{}})", "\"weight_map\" occurs twice"},
             Case{R"({"weight_map":{"a":"../x.safetensors"}})", "not the name of a .safetensors file beside"},
             Case{R"({"weight_map":{"a":"/etc/x.safetensors"}})", "beside the index"},
             Case{R"({"weight_map":{"a":"sub/x.safetensors"}})", "beside the index"},
             Case{R"({"weight_map":{"a":"x.safetensors\u0000.safetensors"}})", "beside the index"},
             Case{R"({"weight_map":{"a":"passwd"}})", "beside the index"},
             Case{R"({"weight_map":{"a":""}})", "beside the index"},
             Case{R"({"weight_map":{"a":"x.safetensors"})", "bad JSON"},
         }) {
        SCOPED_TRACE(text);
        EXPECT_ERROR(parse_index(text), UserError, "F.json", message);
    }
}

}  // namespace
}  // namespace argosy::interop
