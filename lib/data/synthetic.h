// Generates a corpus that needs no download and has something to learn: verbs agree with subjects far before
// them, stories end with a person or thing named early, calculations are correct. The seed alone determines
// the texts.
#pragma once

#include <cstdint>
#include <filesystem>

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

}  // namespace argosy::data
