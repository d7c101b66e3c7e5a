// Reads JSONL, a record a line: {"text": string} or {"tokens": [integers]}; other keys are ignored, and so
// are blank lines. Every error names file and line. Memory: one line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
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

    /// The next record, or false at the end of the file. RunError where a signal asks the program to end
    /// (base/stop_request.h).
    bool next(Record& record);

    /// "file:line" of the record that `next` gave last.
    std::string place() const;

  private:
    bool next_line();
    void parse(Record& record) const;

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    struct Line {
        Line() = default;
        Line(const Line&) = delete;
        Line& operator=(const Line&) = delete;
        ~Line() { std::free(text); }
        std::string_view view() const { return {text, size}; }

        char* text = nullptr;  // getline's
        size_t size = 0, capacity = 0;
    };
    std::filesystem::path path_;
    int64_t vocab_size_;
    std::unique_ptr<std::FILE, Close> file_;  // a stream of C++ would wait on when a signal interrupts it
    Line line_;
    int64_t line_number_ = 0;
};

}  // namespace argosy::data
