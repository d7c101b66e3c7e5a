#include "eval/generate.h"

#include <gtest/gtest.h>

namespace argosy::eval {
namespace {

/// Against bytes.decode("utf-8", errors="replace") of Python; each text comes byte by byte and as a whole.
TEST(CharacterStream, ReplacesMalformedSequencesAsPythonDoes) {
    constexpr std::string_view kBad = "\uFFFD";
    const std::string bad(kBad);
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"a\u00e4\u4eca\U0001f6a2", "a\u00e4\u4eca\U0001f6a2"},
        {"\xe4\xbb", bad},  // a character that never ends
        {"\xe4\xbb"
         "a",
         bad + "a"},  // or is cut short
        {"\xf0\x9f\x9a\xf0\x9f\x9a\xa2", bad + "\U0001f6a2"},
        {"\x80\xff", bad + bad},
        {"\xc0\x80", bad + bad},  // a long form
        {"\xe0\x80\x80", bad + bad + bad},
        {"\xed\xa0\x80", bad + bad + bad},            // a surrogate
        {"\xf4\x90\x80\x80", bad + bad + bad + bad},  // above U+10FFFF
        {std::string("\0b", 2), std::string("\0b", 2)},
    };
    for (const auto& [bytes, expected] : cases) {
        CharacterStream whole, pieces;
        std::string text;
        for (const char byte : bytes) text += pieces.push({&byte, 1});
        EXPECT_EQ(text + pieces.finish(), expected);
        text = whole.push(bytes);
        EXPECT_EQ(text + whole.finish(), expected);
    }
    CharacterStream stream;
    EXPECT_EQ(stream.push("a\xe4\xbb"), "a") << "nothing incomplete is shown";
    EXPECT_EQ(stream.push("\x8a"), "\u4eca");
}

/// The text and whether it was stopped; each text comes character by character and as a whole.
void expect_stopped(const std::vector<std::string>& stops, const std::string& text,
                    const std::string& expected, bool stopped = true) {
    StopTexts whole(stops), pieces(stops);
    std::string found = whole.push(text);
    EXPECT_EQ(found + whole.finish(), expected);
    EXPECT_EQ(whole.stopped(), stopped);
    found.clear();
    for (const char c : text) found += pieces.push({&c, 1});
    EXPECT_EQ(found + pieces.finish(), expected);
}

TEST(StopTexts, EndATextBeforeTheFirstOfThem) {
    expect_stopped({"Question:", "</s>"}, "a Quest</ </s> Question:", "a Quest</ ");
    expect_stopped({"Question:"}, "QuestQuestion: b", "Quest");
    expect_stopped({"aab"}, "aaab", "a");
    expect_stopped({"b", "c"}, "acb", "a");
    expect_stopped({""}, "abc", "abc", false);
    expect_stopped({}, "abc", "abc", false);
    expect_stopped({"bcd"}, "abc", "abc", false);
}

TEST(StopTexts, HoldBackOnlyWhatMayBeginOne) {
    StopTexts text({"\n\n", "\nQ:"});
    EXPECT_EQ(text.push("a\n"), "a");
    EXPECT_EQ(text.push("b"), "\nb");
    EXPECT_EQ(text.push("\nQ"), "");
    EXPECT_EQ(text.push(".\n"), "\nQ.");
    EXPECT_EQ(text.push("\nc"), "");
    EXPECT_TRUE(text.stopped());
    EXPECT_EQ(text.push("d") + text.finish(), "");
}

/// text.split(stop)[0] for each stop text in turn, as the harness cuts a text.
TEST(StopTexts, CutAtEachInTurnWhereTheyOverlap) {
    StopTexts text({"cd", "bc"});
    EXPECT_EQ(text.push("abcd"), "ab");
}

}  // namespace
}  // namespace argosy::eval
