// Reads JSONL, a record a line: {"text": string} or {"tokens": [integers]}; other keys are ignored, and so
// are blank lines. Every error names file and line. Memory: one line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace argosy::data {

enum class RecordKind { Text, Tokens };

/// As messages spell it: {"text"}.
const char* name(RecordKind kind);

struct Record {
    RecordKind kind = RecordKind::Text;
    std::string text;              // of a text record
    std::vector<uint32_t> tokens;  // of a tokens record
};

class RecordReader {
  public:
    /// Tokens must lie in 0 .. vocab_size-1. UserError when the file cannot be opened.
    RecordReader(std::filesystem::path path, int64_t vocab_size);

    /// The next record, or false at the end of the file.
    bool next(Record& record);

    /// "file:line" of the record that `next` gave last.
    std::string place() const;

  private:
    void parse(Record& record) const;

    std::filesystem::path path_;
    int64_t vocab_size_;
    std::ifstream file_;
    std::string line_;
    int64_t line_number_ = 0;
};

}  // namespace argosy::data
