// Reads JSONL, one record per line: {"text": string} or {"tokens": [integers]}; other keys and blank lines
// are ignored. Every error names file and line. Memory: one line.
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

/// The name in messages: {"text"}.
const char* name(RecordKind kind);

struct Record {
    RecordKind kind = RecordKind::Text;
    std::string text;              // of a text record
    std::vector<uint32_t> tokens;  // of a tokens record
};

class RecordReader {
  public:
    /// Requires tokens in 0 .. vocab_size-1. UserError when the file cannot be opened.
    RecordReader(std::filesystem::path path, int64_t vocab_size);

    /// Reads the next record; false at the end of the file. RunError after a signal that asks the program to
    /// end (base/stop_request.h).
    bool next(Record& record);

    /// "file:line" of the record that `next` read last.
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

        char* text = nullptr;  // allocated by getline
        size_t size = 0, capacity = 0;
    };
    std::filesystem::path path_;
    int64_t vocab_size_;
    std::unique_ptr<std::FILE, Close> file_;  // a C++ stream would keep waiting after a signal
    Line line_;
    int64_t line_number_ = 0;
};

}  // namespace argosy::data
