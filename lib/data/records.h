// Reads records, which are JSONL, one per line: {"text": string} or {"tokens": [integers]}. Other keys and
// blank lines are ignored. An error in a record names file and line. One line is in memory at a time.
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

/// Returns the name of a kind in messages: {"text"}.
const char* name(RecordKind kind);

struct Record {
    RecordKind kind = RecordKind::Text;
    std::string text;              // of a text record
    std::vector<uint32_t> tokens;  // of a tokens record
};

class RecordReader {
  public:
    /// Opens a file, or stdin if the path is "-". UserError if the file cannot be opened. Tokens must be in 0
    /// .. vocab_size-1.
    RecordReader(std::filesystem::path path, int64_t vocab_size);

    /// Reads the next record. Returns false at the end of the file. Throws UserError for a bad record, and
    /// RunError after a signal that asks the program to end (base/program.h).
    bool next(Record& record);

    /// Returns "file:line" of the record that `next` read last.
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
    std::unique_ptr<std::FILE, Close> file_;  // reads by read_unless_stopped()
    Line line_;
    int64_t line_number_ = 0;
};

}  // namespace argosy::data
