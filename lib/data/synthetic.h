// Generates a corpus that needs no download and is worth learning: verbs agree with subjects far before them,
// people and things named early return late, sums are correct. The seed alone determines the corpus.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/output.h"
#include "data/random_stream.h"

namespace argosy::data {

struct SyntheticOptions {
    std::filesystem::path output;  // a folder, made if missing
    double megabytes = 16;         // size of train.jsonl, in units of 1e6 bytes
    uint64_t seed = 0;
};

/// Writes train.jsonl, valid.jsonl (a twentieth of train.jsonl, but 50 kB to 5 MB) and tasks/*.jsonl. The
/// files appear once all are written: an error or a signal leaves an earlier corpus as it was. A smaller
/// corpus is the beginning of a larger one with the same seed.
void write_synthetic_corpus(const SyntheticOptions& options);

// A JSONL file of the synthetic corpus. The first record carries the writer's mark, a key that readers of
// records ignore. A later run of the tool replaces only files that have the mark. A signal between two
// records ends the run with RunError (base/program.h).

/// Whether the file at `path` has the writer's mark.
bool is_synthetic(const std::filesystem::path& path);

class SyntheticFile {
  public:
    /// UserError as in PartialFile.
    explicit SyntheticFile(const std::filesystem::path& path);

    /// Buffers the record; the buffer is written to disk when it exceeds one megabyte.
    void append(nlohmann::json record);

    /// Writes what is buffered. Nothing may be appended after it.
    void finish();

    /// Makes the file appear under its name. REQUIRES: finish() was called.
    void commit() { file_.commit(); }

  private:
    PartialFile file_;
    std::string buffer_;
    bool marked_ = false;
};

// Evaluation tasks for the contents of the synthetic corpus, made with the same grammar but with their own
// documents. Formats: data/README.md.

struct SyntheticTask {
    const char* name;  // of the file NAME.jsonl
    int num_records;
    nlohmann::json (*record)(RandomStream& random);  // multiple choice, or a text
};

extern const std::array<SyntheticTask, 4> kSyntheticTasks;

}  // namespace argosy::data
