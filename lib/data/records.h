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

#include "data/token_file.h"

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
    /// end (base/program.h).
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

// Cuts a token file into samples and orders them. The file, the sequence length and the seed alone determine
// the tokens of sample p of a run, not ranks or batch sizes. The loader holds no position, so resuming needs
// no state of it.

struct LoaderOptions {
    int64_t seq_len = 0;
    uint64_t seed = 0;
    bool shuffle = true;  // a new keyed permutation each epoch; false: the file's order
};

class Loader {
  public:
    /// UserError when the file holds no sample of that length. REQUIRES: the file outlives the loader.
    Loader(const TokenFile& file, const LoaderOptions& options);

    /// Samples per epoch. Sample i is tokens [i*seq_len, i*seq_len + seq_len]; the last of them is only a
    /// target.
    int64_t num_samples() const { return num_samples_; }
    int64_t seq_len() const { return options_.seq_len; }

    /// Reads samples first_position .. first_position+count-1 of the run, numbered across epochs without end:
    /// inputs and the tokens that follow them, both [count, seq_len] row-major. Any thread.
    void read(int64_t first_position, int64_t count, int64_t* tokens, int64_t* targets) const;

    /// The file's sample at a position of the run.
    int64_t sample_at(int64_t position) const;

  private:
    const TokenFile& file_;
    LoaderOptions options_;
    int64_t num_samples_;
};

}  // namespace argosy::data
