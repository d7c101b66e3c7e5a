// A task: the documents of a JSONL file, and the examples that precede each of them in its prompt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "eval/readers.h"

namespace argosy::eval {

/// A file of --tasks: [READER=]FILE.
struct TaskName {
    std::string name;  // the file's name, without folder and extension; "stdin" for "-"
    std::filesystem::path path;
    const Reader* reader = nullptr;  // null: the records tell
};

/// UserError for a reader that does not exist, and for two files with the same name.
std::vector<TaskName> task_names(const std::vector<std::string>& words);

/// The harness's default seed for examples.
inline constexpr uint32_t kFewshotSeed = 1234;

struct TaskOptions {
    int64_t vocab_size = 0;
    int64_t limit = 0;  // the maximum number of documents; 0: all
    int64_t num_fewshot = 0;
    std::filesystem::path fewshot_file = {};
    int64_t max_new_tokens = 256;  // of a generated text; the default is the harness's
};

struct Task {
    TaskName file;
    const Reader* reader = nullptr;
    std::vector<Document> documents;  // those to score
    int64_t num_records = 0;          // in the file
    int64_t num_fewshot = 0;
    int64_t max_new_tokens = 0;  // of OutputType::Generation
    /// Only for OutputType::TokenIds: records of fewer than two tokens, which predict nothing and are not in
    /// `documents`; and "file:line" of the first of them.
    int64_t num_short = 0;
    std::string first_short = {};

    OutputType type() const { return reader->type; }
};

/// Reads the file. Throws UserError, naming file and line, for a broken record, for one of another layout
/// than the first one's, and for a file without documents to score; RunError after a signal that asks the
/// program to end.
Task read_task(const TaskName& file, const TaskOptions& options);

}  // namespace argosy::eval
