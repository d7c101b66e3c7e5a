// Generates a corpus that needs no download and has something to learn: verbs agree with subjects far before
// them, stories end with a person or thing named early, calculations are correct. The seed alone determines
// the texts.
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

// A JSONL file of the synthetic corpus. The first record carries a mark, a key that readers of records
// ignore; a later run of the tool replaces only files with the mark. append() throws RunError after a signal
// that asks the program to end (base/program.h).

/// Whether the file at `path` has the mark.
bool is_synthetic(const std::filesystem::path& path);

class SyntheticFile {
  public:
    /// Throws UserError as PartialFile does.
    explicit SyntheticFile(const std::filesystem::path& path);

    /// Buffers the record; the buffer is written to disk once it has 1 MiB.
    void append(nlohmann::json record);

    /// Writes the rest of the buffer to disk. Nothing may be appended afterwards.
    void finish();

    /// Makes the file appear under its name. REQUIRES: finish() was called.
    void commit() { file_.commit(); }

  private:
    PartialFile file_;
    std::string buffer_;
    bool marked_ = false;
};

// Evaluation tasks on what the synthetic corpus teaches, made with the same grammar from other random
// choices. data/README.md specifies the formats.

struct SyntheticTask {
    const char* name;  // of the file NAME.jsonl
    int num_records;
    nlohmann::json (*record)(RandomStream& random);  // makes a multiple-choice question or a text
};

extern const std::array<SyntheticTask, 4> kSyntheticTasks;

}  // namespace argosy::data
