// Files that say what a rank's tensors take: the categories, the largest tensors, and the operations that
// allocated them. FORMAT.md describes the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "observe/memory.h"
#include "plan/large_tensors.h"
#include "plan/rank_trace.h"
#include "train/trainer.h"

namespace argosy::plan {

/// The tensors of a model and its optimizer in one block.
struct NamedBlock {
    std::vector<std::string> names;  // "the weights of output.weight"
    std::string type;                // "float32": all have one type
};
/// The keys are the starts of the blocks.
using NamedBlocks = std::map<const void*, NamedBlock>;
NamedBlocks named_blocks(parallel::ParallelModel& model, const train::AdamW& optimizer);

/// The content of a file beside the MemorySnapshot.
struct SnapshotFacts {
    int rank = 0;
    bool of_caller = true;             // false: of a rank that another rank, whose memory ran out, has called
    std::optional<int64_t> step = {};  // of a snapshot on request
    std::optional<int64_t> requested_bytes = {};  // of a request that failed
    std::optional<plan::HeldBytes> held = {};     // none before the model is made
    NamedBlocks named = {};
    std::span<const LargeTensor> tensors = {};
};

/// The text of a file.
std::string snapshot_json(const observe::MemorySnapshot& snapshot, const SnapshotFacts& facts);

/// Writes FOLDER/WHEN/rank-R.json and returns its path. Logs a warning and returns "" if that fails.
std::filesystem::path write_snapshot(const config::JobConfig& config, const std::string& when,
                                     const observe::MemorySnapshot& snapshot, const SnapshotFacts& facts);

/// Writes the snapshots that profiling.enable_memory_snapshot asks for.
class MemorySnapshots {
  public:
    /// REQUIRES: the arguments outlive this object.
    MemorySnapshots(const config::JobConfig& config, const observe::MemoryMeter& memory,
                    train::Trainer& trainer, std::span<const LargeTensor> tensors, int rank)
        : config_(config), memory_(memory), trainer_(trainer), tensors_(tensors), rank_(rank) {}

    /// Called before the peak of memory begins anew.
    void start_step(int64_t step);
    void finish_step();

  private:
    const config::JobConfig& config_;
    const observe::MemoryMeter& memory_;
    train::Trainer& trainer_;
    std::span<const LargeTensor> tensors_;
    int rank_;
    std::optional<int64_t> step_ = {};  // the one that gets a snapshot
    bool has_peak_of_step_ = false;     // of a step of this process
};

}  // namespace argosy::plan
