// A made-up corpus that needs no download and is worth learning: verbs agree with subjects far before them,
// people and things named early come back late, sums come out right. A function of its seed alone.
#pragma once

#include <cstdint>
#include <filesystem>

namespace argosy::data {

struct SyntheticOptions {
    std::filesystem::path output;  // a folder, made if missing
    double megabytes = 16;         // of train.jsonl, 1e6 bytes each
    uint64_t seed = 0;
};

/// train.jsonl, valid.jsonl (a twentieth of it, but 50 kB to 5 MB) and tasks/*.jsonl. A smaller corpus of the
/// same seed is the beginning of a larger one.
void write_synthetic_corpus(const SyntheticOptions& options);

}  // namespace argosy::data
