#include "base/strict_json.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"

namespace argosy {
namespace {

using nlohmann::ordered_json;

TEST(JsonText, ReplacesBytesThatAreNotUtf8) {
    EXPECT_EQ(json_text(ordered_json{{"b", "\xC3\xA9"}, {"a\xff", 1}}), "{\"b\":\"\xC3\xA9\",\"a\uFFFD\":1}");
    EXPECT_EQ(json_text(ordered_json{{"a", "\xC3"}}, 1), "{\n \"a\": \"\uFFFD\"\n}");
    EXPECT_TRUE(is_utf8(""));
    EXPECT_TRUE(is_utf8("a\xC3\xA9\xF0\x9F\x9A\x80"));
    for (const char* text : {"\xff", "a\xC3", "\xC3(", "\xED\xA0\x80", "\xC0\x80"})
        EXPECT_FALSE(is_utf8(text));
}

TEST(ParseJson, ReadsEveryKindOfValueInOrder) {
    const std::string text = R"({"z": [1, -2, 2.5, true, null, "\u00e9", [], {}], "a": {"b": {"c": [[3]]}}})";
    EXPECT_EQ(parse_json(text, "F"), ordered_json::parse(text));
    EXPECT_EQ(parse_json(text, "F").dump(), ordered_json::parse(text).dump());
    for (const char* scalar : {"5", "\"x\"", "null", " [] "})
        EXPECT_EQ(parse_json(scalar, "F"), ordered_json::parse(scalar));
}

TEST(ParseJson, RefusesAKeyThatOccursTwice) {
    EXPECT_ERROR(parse_json(R"({"a":1,"a":1})", "F"), UserError,
                 "F: ", "the key \"a\" occurs twice; the second is at byte 10");
    EXPECT_ERROR(parse_json("{\"a\": [\n{\"b\": 1,\n  \"b\": 2}]}", "F"), UserError,
                 "F: ", "\"b\" occurs twice; the second is at line 3, byte 5");
    EXPECT_ERROR(parse_json(R"({"a":1,"\u0061":1})", "F"), UserError, "\"a\" occurs twice");
    EXPECT_EQ(parse_json(R"([{"a":1},{"a":{"a":2}}])", "F")[1]["a"]["a"], 2);
}

TEST(ParseJson, RefusesBytesAfterAZeroByte) {
    EXPECT_ERROR(parse_json(std::string("{}\0{}", 5), "F"), UserError, "F: a zero byte at byte 3");
    EXPECT_ERROR(parse_json(std::string("\xff\xfe{\0}\0", 6), "F"), UserError, "F is UTF-16 text",
                 "not JSON");
    EXPECT_ERROR(parse_json(std::string("{}\n\n \0", 6), "F"), UserError, "a zero byte at line 3, byte 2");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
    EXPECT_ERROR(parse_json("", "F"), UserError, "F: bad JSON at byte 0");
    EXPECT_ERROR(parse_json("{\"a\": 1,\n \"b\" 2}", "F"), UserError, "F: bad JSON at line 2, byte 6");
    EXPECT_ERROR(parse_json("{} x", "F"), UserError, "bad JSON at byte 4, near");
    EXPECT_ERROR(parse_json("[NaN]", "F"), UserError, "bad JSON");
    EXPECT_ERROR(parse_json("[1e999]", "F"), UserError, "number overflow");
    EXPECT_ERROR(parse_json("\"\xff\"", "F"), UserError, "bad JSON", "invalid string");
    const std::string open = "\"" + std::string(1000000, 'x');
    try {
        parse_json(open, "F");
        FAIL();
    } catch (const UserError& error) {
        EXPECT_LT(std::string(error.what()).size(), 500);
    }
}

TEST(ParseJson, RefusesDeepNesting) {
    EXPECT_ERROR(parse_json(std::string(1000000, '['), "F"), UserError, "byte 101", "more than 100 deep");
    EXPECT_NO_THROW(parse_json(std::string(100, '[') + std::string(100, ']'), "F"));
}

// A list with many entries does not stay in memory.
TEST(ParseJson, PassesEntriesOn) {
    std::vector<std::string> taken;
    const JsonEntries entries{{"list"}, [&](const std::string& list, const ordered_json& entry) {
                                  taken.push_back(list + entry.dump());
                              }};
    const auto rest =
        parse_json(R"({"list": [{"a": {"x": [{}]}}, 3, {"b": 2}], "other": [{"c": 1}]})", "F", entries);
    EXPECT_EQ(taken, (std::vector<std::string>{R"(list{"a":{"x":[{}]}})", R"(list{"b":2})"}));
    EXPECT_EQ(rest.dump(), R"({"list":[3],"other":[{"c":1}]})");
}

}  // namespace
}  // namespace argosy
