// A task made of token records: a JSONL file of {"tokens": [...]}; the first token of a record is context.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "eval/windows.h"

namespace argosy::eval {

struct TokenTask {
    std::string name;  // the file's name, without folder and extension
    std::filesystem::path path;
    std::vector<Tokens> records;
};

/// UserError, naming file and line, for a record that is broken, of another kind, shorter than two tokens or
/// outside the vocabulary; also for a file without records and for two files with the same name.
std::vector<TokenTask> read_token_tasks(const std::vector<std::filesystem::path>& paths, int64_t vocab_size);

}  // namespace argosy::eval
