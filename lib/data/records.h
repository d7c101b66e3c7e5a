// Reads records, which are JSONL, one per line: {"text": string} or {"tokens": [integers]}. Other keys and
// blank lines are ignored. An error in a record names file and line. One line is in memory at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"

namespace argosy::data {

enum class RecordKind { Text, Tokens };

/// Returns the name of a kind in messages: {"text"}.
const char* name(RecordKind kind);

struct Record {
    RecordKind kind = RecordKind::Text;
    std::string text;              // of a text record
    std::vector<uint32_t> tokens;  // of a tokens record
};

/// Reads a record from its line. `place` names the line in errors. Tokens must be in 0 .. vocab_size-1.
/// Throws UserError for a bad record.
void parse_record(std::string_view line, std::string place, int64_t vocab_size, Record& record);

/// Whether a line has no record.
bool is_blank(std::string_view line);

/// Reads the records of a file one after another.
class RecordReader {
  public:
    /// Opens a file, or stdin if the path is "-" (data/byte_source.h).
    RecordReader(const std::filesystem::path& path, int64_t vocab_size)
        : lines_(path), vocab_size_(vocab_size) {}

    /// Reads the next record. Returns false at the end of the file. Throws as parse_record() and ByteSource
    /// do.
    bool next(Record& record);

    /// Returns "file:line" of the record that `next` read last.
    std::string place() const;

  private:
    LineReader lines_;
    int64_t vocab_size_;
    int64_t line_number_ = 0;
};

}  // namespace argosy::data
