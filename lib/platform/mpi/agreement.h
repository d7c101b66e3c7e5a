// Compares what the ranks of a job start with: settings, the executable, the contents of files. Ranks that
// differ would train together with wrong numbers, or wait for each other for ever.
//
// A rank has a list of facts, each a key and a value. One all-reduce of a hash of the list tells all ranks
// whether they agree, so ranks that agree exchange 16 bytes. Only after a difference does rank 0 send the
// hashes of its facts to all ranks, and an all-reduce of one byte for each fact finds the keys that differ.
// Rank 0 then gathers the values of at most kMaxDifferences keys, one key after the other: 8 MiB at a time
// for 16,384 ranks. Every exchange has the timeout of a BoundedCall (start_up.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "mpi/comm.h"

namespace argosy::mpi {

inline constexpr const char* kSameStart = "start every rank with the same program and options";

struct Fact {
    std::string key, value;
    std::string note = {};  // messages show it beside the value, such as a path; ranks may differ in it
    const char* remedy = kSameStart;  // what to do if ranks differ in this fact
};
inline constexpr const char* kCopyFile = "copy the file to all nodes";

/// A key whose values differ between ranks.
struct Difference {
    std::string key;
    /// The values with the ranks that have each, the most frequent value first. Only rank 0 has them.
    std::vector<std::pair<std::string, std::vector<int>>> values = {};
    const char* remedy = kSameStart;  // of rank 0's fact
};

inline constexpr size_t kMaxDifferences = 8;

/// COLLECTIVE: the first keys, in the order of rank 0's facts, whose values differ between ranks. All ranks
/// return the same keys, none if the ranks agree. A rank whose list lacks a key has the value kNoFact.
std::vector<Difference> find_differences(const Comm& ranks, const std::vector<Fact>& own);
inline constexpr const char* kNoFact = "(nothing)";

/// "optimizer.lr: 0.0003 on rank 0; 0.0001 on rank 1", at most four values and eight ranks of each.
std::string describe(const Difference& difference);

/// COLLECTIVE: throws the same UserError on all ranks if they differ. The message names keys, values and
/// ranks.
void require_same(const Comm& ranks, const std::vector<Fact>& own);

/// For the value of a fact: XXH3-64 of the file's bytes, in hex. Empty if the file cannot be read.
std::string digest_of_file(const std::filesystem::path& path);

/// The fact of this process's executable and version.
Fact executable_fact();

}  // namespace argosy::mpi
