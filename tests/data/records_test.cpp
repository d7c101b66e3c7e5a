#include "data/records.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "data/record_lines.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::data {
namespace {

class RecordsTest : public testing::Test {
  protected:
    /// The records of a file with this content.
    std::vector<Record> read(const std::string& lines) {
        write_file(folder_ / "a.jsonl", lines);
        return records_of(folder_ / "a.jsonl", 1000);
    }

    ScratchFolder folder_;
};

TEST_F(RecordsTest, ReadsTextAndTokens) {
    const auto records = read(
        "{\"text\": \"a \\\"b\\\"\\n\\u00e9\", \"id\": [1, {}]}\n\n{\"tokens\": [0, "
        "999]}\r\n{\"tokens\":[]}");
    ASSERT_EQ(records.size(), 3);
    EXPECT_EQ(records[0].kind, RecordKind::Text);
    EXPECT_EQ(records[0].text, "a \"b\"\n\xc3\xa9");
    EXPECT_EQ(records[1].kind, RecordKind::Tokens);
    EXPECT_EQ(records[1].tokens, (std::vector<uint32_t>{0, 999}));
    EXPECT_TRUE(records[2].tokens.empty());
}

TEST_F(RecordsTest, ErrorsNameFileAndLine) {
    const std::string good = "{\"text\": \"fine\"}\n";
    EXPECT_ERROR(read(good + "{\"text\": \"open\n" + good), UserError, "a.jsonl:2", "bad JSON at byte 14");
    EXPECT_ERROR(read(good + good + "{} x"), UserError, "a.jsonl:3", "bad JSON");
    EXPECT_ERROR(read(good + "\n[1]"), UserError, "a.jsonl:3", "not a JSON object");
    EXPECT_ERROR(read("{\"txt\": \"a\"}"), UserError, "a.jsonl:1", "neither");
    EXPECT_ERROR(read("{\"text\": \"a\", \"tokens\": [1]}"), UserError, "a.jsonl:1", "both");
    EXPECT_ERROR(read("{\"text\": 5}"), UserError, "a.jsonl:1", "not a string");
    EXPECT_ERROR(read("{\"text\": \"\xff\"}"), UserError, "a.jsonl:1", "bad JSON");
}

// The JSON library alone would take the second value of a key, and ignore what follows a zero byte.
TEST_F(RecordsTest, RefusesWhatWouldBeIgnored) {
    EXPECT_ERROR(read("{\"text\": \"a\"}\n{\"text\": \"b\", \"text\": \"c\"}\n"), UserError, "a.jsonl:2",
                 "the key \"text\" occurs twice", "byte 20");
    EXPECT_ERROR(read(R"({"text": "a", "meta": {"id": 1, "id": 2}})"), UserError, "a.jsonl:1", "\"id\"");
    EXPECT_ERROR(read(std::string("{\"text\": \"a\"}\0{\"text\": \"b\"}\n", 28)), UserError, "a.jsonl:1",
                 "a zero byte at byte 14");
    EXPECT_EQ(read(R"({"text": "a", "meta": {"text": 5, "tokens": [[]]}, "more": [{"text": {}}]})")[0].text,
              "a");
}

TEST_F(RecordsTest, RefusesInvalidTokens) {
    EXPECT_ERROR(read("{\"tokens\": 5}"), UserError, "a.jsonl:1", "not an array");
    EXPECT_ERROR(read("{\"tokens\": [1, 2.5]}"), UserError, "a.jsonl:1", "2.5", "not an integer");
    EXPECT_ERROR(read("{\"tokens\": [1, \"2\"]}"), UserError, "a.jsonl:1", "\"2\"");
    EXPECT_ERROR(read("{\"tokens\": [1, -2]}"), UserError, "a.jsonl:1", "token -2", "0 .. 999");
    EXPECT_ERROR(read("{\"tokens\": [1, [2]]}"), UserError, "a.jsonl:1", "token a list is not an integer");
    EXPECT_ERROR(read("{\"tokens\": {\"a\": 1}}"), UserError, "a.jsonl:1", "not an array", "an object");
    EXPECT_ERROR(read("{\"tokens\": [1000]}"), UserError, "a.jsonl:1", "token 1000", "0 .. 999");
    EXPECT_ERROR(read("{\"tokens\": [18446744073709551615]}"), UserError, "18446744073709551615");
}

TEST_F(RecordsTest, ReadsLossMasksAndCompletions) {
    const auto records = read(
        "{\"loss_mask\": [0, 1], \"tokens\": [5, 6], \"meta\": {\"loss_mask\": 3}}\n"
        "{\"completion\": \"b\", \"prompt\": \"a\"}\n{\"tokens\": [7]}\n"
        "{\"prompt\": [\"a\", {\"text\": 1}], \"text\": \"c\"}\n{\"completion\": null, \"tokens\": []}");
    ASSERT_EQ(records.size(), 5);
    EXPECT_EQ(records[0].kind, RecordKind::MaskedTokens);
    EXPECT_EQ(records[0].tokens, (std::vector<uint32_t>{5, 6}));
    EXPECT_EQ(records[0].loss_mask, (std::vector<uint8_t>{0, 1}));
    EXPECT_EQ(records[1].kind, RecordKind::Completion);
    EXPECT_EQ(records[1].prompt + "|" + records[1].completion, "a|b");
    EXPECT_EQ(records[2].kind, RecordKind::Tokens);
    EXPECT_TRUE(records[2].loss_mask.empty());
    EXPECT_EQ(records[3].kind, RecordKind::Text);
    EXPECT_EQ(records[3].text, "c");
    EXPECT_EQ(records[4].kind, RecordKind::Tokens);
}

TEST_F(RecordsTest, RefusesInvalidLossMasksAndCompletions) {
    const std::string good = "{\"tokens\": [1, 2], \"loss_mask\": [1, 0]}\n";
    EXPECT_ERROR(read(good + R"({"tokens": [1, 2], "loss_mask": [1]})"), UserError, "a.jsonl:2",
                 "\"loss_mask\" has 1 values for 2 tokens");
    EXPECT_ERROR(read(good + R"({"tokens": [1], "loss_mask": [2]})"), UserError, "a.jsonl:2",
                 "holds 2, not 0 or 1");
    EXPECT_ERROR(read(R"({"tokens": [1], "loss_mask": [-1]})"), UserError, "holds -1");
    EXPECT_ERROR(read(R"({"tokens": [1], "loss_mask": [true]})"), UserError, "holds true");
    EXPECT_ERROR(read(R"({"tokens": [1], "loss_mask": [0.5]})"), UserError, "holds 0.5");
    EXPECT_ERROR(read(R"({"tokens": [1], "loss_mask": [[1]]})"), UserError, "holds a list");
    EXPECT_ERROR(read(R"({"tokens": [1], "loss_mask": 1})"), UserError, "not an array of 0 and 1, but 1");
    EXPECT_ERROR(read(R"({"text": "a", "loss_mask": [1]})"), UserError, "a.jsonl:1", "needs \"tokens\"");
    EXPECT_ERROR(read(R"({"prompt": "a"})"), UserError, "a.jsonl:1", "neither");
    EXPECT_ERROR(read(R"({"prompt": "a", "completion": 5})"), UserError,
                 "\"completion\" is not a string, but 5");
    EXPECT_ERROR(read(R"({"prompt": [{"role": "user"}], "completion": "b"})"), UserError,
                 "\"prompt\" is not a string, but a list");
    EXPECT_ERROR(read(R"({"prompt": "a", "completion": "b", "text": "ab"})"), UserError,
                 "both \"text\" and \"completion\"");
}

TEST_F(RecordsTest, ReadsMessages) {
    const auto records = read(
        R"({"id": 1, "messages": [{"content": "a", "role": "user", "name": null}, {"role": "assistant", "content": ""}],)"
        R"( "prompt": "a", "tools": []})"
        "\n"
        R"({"messages": [], "tools": null, "more": [{"role": {}}]})"
        "\n"
        R"({"text": "a", "tools": [{"role": 1}]})");
    ASSERT_EQ(records.size(), 3);
    EXPECT_EQ(records[0].kind, RecordKind::Messages);
    ASSERT_EQ(records[0].messages.size(), 2);
    EXPECT_EQ(records[0].messages[0].role + "|" + records[0].messages[0].content, "user|a");
    EXPECT_EQ(records[0].messages[1].role + "|" + records[0].messages[1].content, "assistant|");
    EXPECT_EQ(records[1].kind, RecordKind::Messages);
    EXPECT_TRUE(records[1].messages.empty());
    EXPECT_EQ(records[2].kind, RecordKind::Text);
}

TEST_F(RecordsTest, RefusesOtherMessages) {
    const std::string begin = R"({"messages": [{"role": "user", "content": "a"}, )";
    const auto refused = [&](const std::string& rest, const char* reason) {
        EXPECT_ERROR(read("\n" + begin + rest), UserError, "a.jsonl:2", reason,
                     "{\"tokens\", \"loss_mask\"}");
    };
    refused(R"({"role": "user"}]})", "message 1 has no \"content\"");
    refused(R"({"content": "user"}]})", "message 1 has no \"role\"");
    refused(R"({"role": "user", "content": null}]})", "\"content\" of message 1 is not a string, but null");
    refused(R"({"role": "user", "content": [{"type": "text", "text": "a"}]}]})",
            "\"content\" of message 1 is not a string, but a list");
    refused(R"({"role": 3, "content": ""}]})", "\"role\" of message 1 is not a string, but 3");
    refused(R"({"role": "user", "content": "", "tool_calls": [{}]}]})",
            "message 1 has the key \"tool_calls\"");
    refused(R"({"role": "user", "content": "", "weight": 0}]})", "message 1 has the key \"weight\"");
    refused(R"("a"]})", "a message is not an object, but \"a\"");
    refused(R"([{"role": "user", "content": ""}]]})", "a message is not an object, but a list");
    refused(R"({"role": "user", "content": ""}], "tools": [{"name": "f"}]})", "the record has \"tools\"");
    EXPECT_ERROR(read(R"({"messages": "a"})"), UserError, "\"messages\" is not a list, but \"a\"");
    EXPECT_ERROR(read(begin + R"({"role": "user", "content": ""}], "text": "a"})"), UserError,
                 "both \"text\" and \"messages\"", "--column text");
    EXPECT_ERROR(read(begin + R"({"role": "user", "role": "user", "content": ""}]})"), UserError, "role");
}

TEST_F(RecordsTest, ATextKeyThatIsNamedIgnoresAllOtherKeys) {
    const auto parse = [](const char* line, std::string_view text_key) {
        Record record;
        parse_record(line, "place", 10, record, text_key);
        EXPECT_EQ(record.kind, RecordKind::Text);
        return record.text;
    };
    constexpr const char* kLine = R"({"messages": [{"role": 1}], "text": "a", "tokens": [99], "body": "b"})";
    EXPECT_EQ(parse(kLine, kTextKey), "a");
    EXPECT_EQ(parse(kLine, "body"), "b");
    EXPECT_ERROR(parse(R"({"tokens": [1]})", kTextKey), UserError, "has no key \"text\" (--column)");
}

TEST_F(RecordsTest, RefusesFilesThatCannotBeRead) {
    EXPECT_ERROR(records_of(folder_ / "none.jsonl", 10), UserError, "none.jsonl", "No such file");
    std::filesystem::create_directory(folder_ / "sub");
    EXPECT_ERROR(records_of(folder_ / "sub", 10), UserError, "sub", "folder");
}

TEST_F(RecordsTest, AStopRequestBeforeTheWaitForBytesEndsIt) {
    const auto request_and_read = [&] {
        const auto path = folder_ / "pipe";
        mkfifo(path.c_str(), 0600);
        const Descriptor writer(open(path.c_str(), O_RDWR | O_CLOEXEC));
        catch_stop_requests(StopSignals::Terminal);
        std::raise(SIGTERM);
        alarm(60);  // ends the process if the read waits for ever
        EXPECT_ERROR(records_of(path, 10), RunError, "stopped by a signal");
        std::exit(HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(request_and_read(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace argosy::data
