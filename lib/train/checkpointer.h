// Saves the run every so often while it goes on. A step stands still only for the copy of what this rank
// writes to host memory; a thread writes it, and once all ranks have written theirs rank 0 makes the step
// whole. Owns that thread and the copy. Two saves never overlap.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_writer.h"
#include "checkpoint/hash.h"
#include "checkpoint/table.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "train/joint_work.h"
#include "train/position.h"
#include "train/run_state.h"
#include "train/shard_copy.h"

namespace argosy::train {

struct SaveOptions {
    config::Checkpoint checkpoint = {};
    std::filesystem::path folder = {};  // of the steps
    int64_t first_step = 0;             // after which this process begins: saved already, if it was ever
    int64_t final_step = 0;             // at which the run ends
    /// Of every save; step, state and model_only are each save's own.
    checkpoint::Description description = {};
    std::vector<checkpoint::Asset> assets = {};  // files that go with every step
};

class Checkpointer {
  public:
    /// COLLECTIVE, as is everything here, over `control`, which no data travels on. Makes the
    /// folder. UserError where it cannot be made, or something else lies where the last step is to be
    /// exported to. REQUIRES: control and state outlive it.
    Checkpointer(SaveOptions options, comm::Communicator& control, const RunState& state);

    /// Whether anything is saved: without checkpoint.enable, or with load_only, the functions below do
    /// nothing.
    bool saves() const { return options_->checkpoint.saves(); }

    /// At the begin of each step. With async_mode = disabled what the step before wrote becomes whole here:
    /// its line of metrics is written by then, so that a run that goes on from it lacks none.
    void before_step();

    /// At the end of each step, before its line of metrics is written. Moves the save under way on, and
    /// begins one when it is time. Throws JobError where the save under way has failed on some rank; what it
    /// left is removed, and earlier steps are as they were.
    void after_step(const Position& position);

    /// Where the run stops, for whatever reason: saves unless that step is saved already, and waits until all
    /// is written.
    void finish(const Position& position);

    /// Waits until the save under way is whole; throws as after_step does.
    void settle();

  private:
    enum class Stage { MakeFolder, WriteShards, Written, Commit };
    /// What the thread of the work reads. It may outlive this object, where a disk hangs while an error
    /// unwinds, so all of it is its own.
    struct Save {
        std::shared_ptr<const SaveOptions> options;
        int writer = 0, num_writers = 1;
        Position position;
        bool model_only = false;
        std::string state;  // JSON
        checkpoint::Hash set;
        std::vector<checkpoint::Piece> pieces;
        std::shared_ptr<const ShardCopy> copy;
        std::vector<std::span<const std::byte>> bytes;  // of each piece, in the copy

        std::filesystem::path place() const;
        void start() const;
        void write_shard() const;
        void commit() const;
    };

    void begin(const Position& position);
    void advance();
    void begin_commit();
    [[noreturn]] void give_up();
    void tell_of_memory();
    void tell_of_end() const;
    std::vector<ShardPart> parts_of(bool model_only) const;
    void export_last(int64_t step);

    bool is_async() const { return options_->checkpoint.async_mode == config::AsyncMode::Async; }
    bool is_due(int64_t step) const;
    bool is_last(int64_t step) const { return step == options_->final_step; }
    std::function<void()> on_rank_0(std::function<void()> work) const;

    std::shared_ptr<const SaveOptions> options_;
    comm::Communicator& control_;
    const RunState& state_;
    std::vector<int64_t> nonce_;  // tells this process's saves from those of others
    int64_t last_begun_ = 0;      // step
    bool memory_is_told_ = false, overlap_is_told_ = false;
    std::shared_ptr<ShardCopy> copy_ = std::make_shared<ShardCopy>();
    std::shared_ptr<const Save> save_;  // under way
    Stage stage_ = Stage::MakeFolder;   // of it
    double started_ = 0;                // it, by seconds_now()
    double stalled_seconds_ = 0;        // by it, until training went on
    std::optional<double> finishes_;    // since when the run's end waits for it, if it does
    JointWork work_;
};

}  // namespace argosy::train
