#include "eval/task_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::eval {
namespace {

class TaskFile : public ::testing::Test {
  protected:
    std::filesystem::path file(const std::string& name, const std::string& text) {
        write_file(folder_ / name, text);
        return folder_ / name;
    }
    Task read(const std::string& text, TaskOptions options = {.vocab_size = kVocabSize}) {
        return read_task(task_names({file("t.jsonl", text)}).front(), options);
    }
    /// Reads a file whose first record is good.
    Task read_second(const std::string& line) { return read("{\"tokens\": [1, 2]}\n" + line); }

    static constexpr int64_t kVocabSize = 10;
    const ScratchFolder folder_;
};

TEST_F(TaskFile, TasksAreNamedAfterTheirFiles) {
    const auto tasks = task_names({"a/one.jsonl", "choices=b/two.c.jsonl", "-"});
    ASSERT_EQ(tasks.size(), 3u);
    EXPECT_EQ(tasks[0].name, "one");
    EXPECT_EQ(tasks[0].reader, nullptr);
    EXPECT_EQ(tasks[1].name, "two.c");
    EXPECT_EQ(tasks[1].path, "b/two.c.jsonl");
    EXPECT_EQ(tasks[1].reader, find_reader("choices"));
    EXPECT_EQ(tasks[2].name, "stdin");
    const std::string odd = file("choices=odd.jsonl", "");
    EXPECT_EQ(task_names({odd})[0].path, odd) << "a file of this name exists";
    EXPECT_ERROR(task_names({"a/t.jsonl", "b/t.jsonl"}), UserError, "b/t.jsonl", "'t'");
    EXPECT_ERROR(task_names({"swag=t.jsonl"}), UserError, "no reader 'swag'", "continuation");
}

TEST_F(TaskFile, NamesOfDataSetsSayWhichFileToBring) {
    EXPECT_ERROR(task_names({"hellaswag"}), UserError,
                 R"(load_dataset("Rowan/hellaswag", split="validation").to_json("hellaswag.jsonl"))",
                 "--tasks hellaswag=hellaswag.jsonl");
    EXPECT_ERROR(task_names({"arc_easy"}), UserError, R"("ARC-Easy", split="test")",
                 "--tasks arc=arc_easy.jsonl");
    EXPECT_ERROR(task_names({"arc_challenge"}), UserError, R"("ARC-Challenge", split="test")");
    EXPECT_ERROR(task_names({"mmlu_anatomy"}), UserError, R"("cais/mmlu", "anatomy")",
                 "--tasks mmlu=mmlu_anatomy.jsonl");
    EXPECT_EQ(task_names({"hellaswag.jsonl"})[0].name, "hellaswag");
    for (const Reader& reader : public_readers()) {
        const std::string name = reader.name;
        EXPECT_ERROR(task_names({name}), UserError, "--tasks " + name + "=" + name + ".jsonl");
    }
}

TEST_F(TaskFile, RecordsOfDataSetsAreChecked) {
    const auto refused = [&](const std::string& reader, const std::string& record, const std::string& part) {
        const std::string path = file(reader + ".jsonl", record);
        EXPECT_ERROR(read_task(task_names({reader + "=" + path}).front(), {.vocab_size = kVocabSize}),
                     UserError, path + ":1", part);
    };
    refused("boolq", R"({"passage": "p", "question": "q", "answer": "yes"})", "not true or false");
    refused("boolq", R"({"passage": "p", "question": "q", "label": -1})", "names choice -1");
    refused("arc",
            R"({"question": {"stem": "q", "choices": [{"text": "a", "label": "A"}]}, "answerKey": "B"})",
            "none of the labels");
    refused("openbookqa", R"({"question": {"stem": "q", "choices": "a"}, "answerKey": "B"})", "not a list");
    refused("mmlu", R"({"question": "q", "subject": "s", "choices": ["a", "b", "c", "d"], "answer": "E"})",
            "is none of A, B, C and D");
    refused("truthfulqa_mc2", R"({"question": "q", "mc2_targets": {"choices": ["a", "b"], "labels": [1]}})",
            "1 labels for 2 choices");
    refused("wikitext", R"({"text": "a"})", "has no \"page\"");
}

TEST_F(TaskFile, RecordsAreRecognisedByTheirKeys) {
    EXPECT_EQ(read("{\"text\": \"a\"}").type(), OutputType::Rolling);
    EXPECT_EQ(read("{\"context\": \"a\", \"continuation\": \"b\", \"id\": 1}").type(),
              OutputType::Continuation);
    const Task task = read("{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n\n");
    EXPECT_EQ(task.type(), OutputType::Choices);
    const Task other = read("{\"context\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 1}");
    EXPECT_EQ(other.documents[0].contexts, task.documents[0].contexts);
    EXPECT_EQ(other.documents[0].continuations, task.documents[0].continuations);
    EXPECT_EQ(task.num_records, 1);
    EXPECT_EQ(task.documents[0].contexts, std::vector<std::string>{"q"});
    EXPECT_EQ(task.documents[0].continuations, (std::vector<std::string>{" a", " b"}));
    EXPECT_ERROR(read("{\"query\": \"q\", \"choices\": []}"), UserError, "t.jsonl:1", "of none", "\"gold\"");
    EXPECT_ERROR(read("{\"text\": \"a\", \"tokens\": [1]}"), UserError, "t.jsonl:1", "of several");
    EXPECT_ERROR(read("[1]"), UserError, "t.jsonl:1", "not a JSON object");
}

TEST_F(TaskFile, RecordsThatPredictNothingAreCounted) {
    const Task task = read("{\"tokens\": [1, 2]}\n{\"tokens\": []}\n{\"tokens\": [1]}\n{\"tokens\": [3, 4]}");
    ASSERT_EQ(task.documents.size(), 2u);
    EXPECT_EQ(task.documents[1].tokens, (Tokens{3, 4}));
    EXPECT_EQ(task.documents[1].place, (folder_ / "t.jsonl").string() + ":4");
    EXPECT_EQ(task.num_records, 4);
    EXPECT_EQ(task.num_short, 2);
    EXPECT_EQ(task.first_short, (folder_ / "t.jsonl").string() + ":2");
}

TEST_F(TaskFile, BadRecordsAreRefused) {
    EXPECT_ERROR(read_second("{\"text\": \"a b\"}"), UserError, "t.jsonl:2", "layout 'text'", "'tokens'");
    EXPECT_ERROR(read_second("{\"tokens\": [1, 10]}"), UserError, "t.jsonl:2", "token 10", "0 .. 9");
    EXPECT_ERROR(read_second("{\"tokens\": [1, -1]}"), UserError, "t.jsonl:2", "token -1");
    EXPECT_ERROR(read_second("{\"tokens\": [1, 1.5]}"), UserError, "t.jsonl:2", "token 1.5");
    EXPECT_ERROR(read_second("{\"tokens\": [1, 2"), UserError, "t.jsonl:2", "bad JSON");
    const auto read_choice = [&](const std::string& choices, const std::string& gold) {
        return read("{\"query\": \"q\", \"choices\": " + choices + ", \"gold\": " + gold + "}");
    };
    EXPECT_ERROR(read_choice("[\"a\", \"b\"]", "2"), UserError, "t.jsonl:1", "\"gold\"", "choice 2", "of 2");
    EXPECT_ERROR(read_choice("[\"a\", \"b\"]", "-1"), UserError, "t.jsonl:1", "\"gold\"", "choice -1");
    EXPECT_ERROR(read_choice("[\"a\", \"b\"]", "true"), UserError, "t.jsonl:1", "\"gold\"",
                 "not a whole number");
    EXPECT_ERROR(read_choice("[\"a\", \"\"]", "0"), UserError, "t.jsonl:1", "choice 1", "is empty");
    EXPECT_ERROR(read_choice("[\"a\", 1]", "0"), UserError, "t.jsonl:1", "choices[1]", "not a string");
    EXPECT_ERROR(read_choice("[]", "0"), UserError, "t.jsonl:1", "\"choices\"");
    EXPECT_ERROR(read("{\"context\": \"a\", \"continuation\": \"\"}"), UserError, "t.jsonl:1",
                 "nothing to predict");
}

TEST_F(TaskFile, FilesWithoutDocumentsAreRefused) {
    EXPECT_ERROR(read("\n"), UserError, "t.jsonl", "no records");
    EXPECT_ERROR(read("{\"tokens\": [1]}"), UserError, "t.jsonl", "two tokens or more (1 are shorter)");
    EXPECT_ERROR(read_task(task_names({(folder_ / "missing.jsonl").string()})[0], {}), UserError,
                 "missing.jsonl", "cannot open");
    EXPECT_ERROR(read_task(task_names({(folder_ / ".").string()})[0], {}), UserError, "is a folder");
}

TEST_F(TaskFile, ALimitKeepsTheFirstRecords) {
    const Task task = read("{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}", {.limit = 2});
    EXPECT_EQ(task.documents.size(), 2u);
    EXPECT_EQ(task.num_records, 3);
}

TEST_F(TaskFile, ExamplesAreNeverTheDocumentItself) {
    std::string lines;
    for (const char* word : {"a", "b", "c", "c"}) {
        lines += fmt::format("{{\"context\": \"q\", \"continuation\": \"{}\"}}\n", word);
    }
    const auto path = file("examples.jsonl", lines);
    const Task task = read_task(task_names({path})[0], {.num_fewshot = 2, .fewshot_file = path});
    for (const Document& document : task.documents) {
        const std::string& context = document.contexts[0];
        EXPECT_EQ(context.find("q " + document.answer), context.npos) << context;
        EXPECT_EQ(context.size(), std::string("q a\n\nq a\n\nq").size()) << context;
    }
    EXPECT_ERROR(read_task(task_names({path})[0], {.num_fewshot = 4, .fewshot_file = path}), UserError,
                 "examples.jsonl:1", "--num-fewshot is 4", "4 examples");
    EXPECT_ERROR(read("{\"text\": \"a\"}", {.num_fewshot = 1, .fewshot_file = path}), UserError,
                 "--num-fewshot");
}

}  // namespace
}  // namespace argosy::eval
