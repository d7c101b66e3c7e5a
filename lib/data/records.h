// Reads training data: RecordReader reads records, Loader reads samples from a token file.
//
// Records are JSONL, one per line: {"text": string} or {"tokens": [integers]}. Other keys and blank lines are
// ignored. An error in a record names file and line. One line is in memory at a time.
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

/// Returns the name of a kind in messages: {"text"}.
const char* name(RecordKind kind);

struct Record {
    RecordKind kind = RecordKind::Text;
    std::string text;              // of a text record
    std::vector<uint32_t> tokens;  // of a tokens record
};

class RecordReader {
  public:
    /// Throws UserError if the file cannot be opened. Tokens must be in 0 .. vocab_size-1.
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
    std::unique_ptr<std::FILE, Close> file_;  // a C++ stream would keep waiting after a signal
    Line line_;
    int64_t line_number_ = 0;
};

// Cuts a token file into samples and orders them. The tokens of sample p of a run depend only on the file and
// the LoaderOptions, not on ranks or batch sizes. The loader keeps no position, so a resumed run needs no
// state of it.

struct LoaderOptions {
    int64_t seq_len = 0;
    uint64_t seed = 0;
    bool shuffle = true;  // each epoch has a new keyed permutation; false: the file's order
};

class Loader {
  public:
    /// Throws UserError if the file holds no sample of that length. REQUIRES: the file outlives the loader.
    Loader(const TokenFile& file, const LoaderOptions& options);

    /// Samples per epoch. Sample i is tokens i * seq_len .. (i + 1) * seq_len; the last of them is only a
    /// target.
    int64_t num_samples() const { return num_samples_; }
    int64_t seq_len() const { return options_.seq_len; }

    /// Reads samples first_position .. first_position+count-1 of the run, which are numbered across epochs
    /// without end: the inputs, and as targets the tokens that follow them, both [count, seq_len] row-major.
    /// Any thread may call this.
    void read(int64_t first_position, int64_t count, int64_t* tokens, int64_t* targets) const;

    /// Returns the number, within the file, of the sample at a position of the run.
    int64_t sample_at(int64_t position) const;

  private:
    const TokenFile& file_;
    LoaderOptions options_;
    int64_t num_samples_;
};

}  // namespace argosy::data
