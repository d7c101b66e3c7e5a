// Saves the run at intervals while it trains. Each rank copies its shard to host memory: training waits for
// that on a processor, and on a GPU the next step's passes run beside it, and only its update waits. A
// background thread then writes the shard, and rank 0 commits the step once all ranks have written.
// Training also waits for the writing and the commit if async_mode = disabled. The Checkpointer owns the
// thread and the copy. Two saves never overlap.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/hash.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/table.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "model/model_spec.h"
#include "resume/joint_work.h"
#include "resume/restore.h"
#include "resume/run_state.h"
#include "resume/save_plan.h"
#include "train/run_limits.h"

namespace argosy::resume {

struct SaveOptions {
    config::Checkpoint checkpoint = {};
    std::filesystem::path folder = {};  // holds the steps
    int64_t initial_step = 0;           // the last step done before this process began; not saved again
    int64_t final_step = 0;             // the step with which the run ends
    double stall_seconds = JointWork::kNoLimit;  // see JointWork::pause()
    /// Common to all saves. Each save sets step, state and model_only itself.
    checkpoint::Description description = {};
    std::vector<checkpoint::Asset> assets = {};  // files that go with every step
};

class Checkpointer {
  public:
    /// COLLECTIVE over `control`, like all functions of this class except saves(). `control` carries no
    /// training data. Makes the folder. Throws UserError if the folder cannot be made, or if something else
    /// occupies the path for the export of the last step. Throws JobError if the disk has no room for a step.
    /// REQUIRES: control and state outlive this object.
    Checkpointer(SaveOptions options, comm::Communicator& control, const RunState& state);

    /// Whether the run saves. Without checkpoint.enable, or with checkpoint.load_only, it does not, and the
    /// functions below do nothing.
    bool saves() const { return options_->checkpoint.saves(); }

    /// Call at the start of each step. Commits the save of the previous step if async_mode = disabled. The
    /// previous step's metrics line is written by now, so a run that resumes from the save misses no line.
    void before_step();

    /// Call between the passes of a step and its update, which changes what a save under way may still copy
    /// from the GPU: the update begins after the copy. Returns at once; the GPU's wait is part of the update.
    void before_update() { copy_->before_change(); }

    /// Call at the end of each step, before its metrics line is written. Advances the save under way, and
    /// begins a new save if one is due. Throws JobError if the save under way failed on some rank. In that
    /// case the save's partial folder is removed, and earlier steps stay as they were.
    void after_step(const train::Position& position);

    /// Call when the run stops: at its final step, at its time limit or on a signal. Saves the step unless it
    /// is saved already, and waits until everything is written. Exports the final step
    /// if checkpoint.last_save_in_hf is set.
    void finish(const train::Position& position);

    /// Waits until the save under way is committed. Throws the same errors as after_step().
    void finish_save_under_way();

  private:
    enum class Stage { MakeFolder, WriteShards, Written, Commit };
    /// Everything that the background thread reads. A Save refers to nothing in the Checkpointer, because the
    /// thread outlives the Checkpointer if a disk hangs while an error unwinds.
    struct Save {
        std::shared_ptr<const SaveOptions> options;
        int writer = 0;
        train::Position position;
        bool model_only = false;
        std::string state;       // JSON
        checkpoint::Hash nonce;  // the same in all shards of one save, and in no other save
        checkpoint::SavePlan plan;
        std::shared_ptr<const ShardCopy> copy;
        /// The bytes of each slab of the writer, in `copy`.
        std::vector<std::span<const std::byte>> bytes;

        std::filesystem::path place() const;
        void make_folder() const;
        void write_shard() const;
        void commit() const;
    };

    void begin(const train::Position& position);
    void advance();
    void begin_commit();
    [[noreturn]] void give_up();
    void log_memory();
    void log_end() const;
    void require_space_for_step() const;
    checkpoint::SavePlan plan_of(bool model_only) const;
    void export_last(int64_t step);

    bool is_async() const { return options_->checkpoint.async_mode == config::AsyncMode::Async; }
    bool is_due(int64_t step) const;
    bool is_last(int64_t step) const { return step == options_->final_step; }
    std::function<void()> on_rank_0(std::function<void()> work) const;

    std::shared_ptr<const SaveOptions> options_;
    comm::Communicator& control_;
    const RunState& state_;
    std::vector<checkpoint::CutTensor> weights_, states_;  // of all pipeline ranks
    /// Random: distinguishes this process's saves from the saves of others.
    std::array<int64_t, 2> nonce_ = {};
    int64_t last_begun_ = 0;  // step of the newest save; 0: none
    bool memory_is_logged_ = false, overlap_is_logged_ = false;
    std::shared_ptr<ShardCopy> copy_ = std::make_shared<ShardCopy>();
    std::shared_ptr<const Save> save_;      // under way
    Stage stage_ = Stage::MakeFolder;       // of save_
    double started_ = 0;                    // when save_ began, by seconds_now()
    double stalled_seconds_ = 0;            // how long the host waited for the copy of save_
    std::optional<double> finish_started_;  // when finish() began to wait for save_, by seconds_now()
    JointWork work_;
};

/// Options for a run that begins at `start` and ends with `final_step`. Throws UserError if the run saves and
/// no config.json can describe the model.
SaveOptions save_options(const config::JobConfig& config, const model::ModelSpec& spec,
                         const layout::MeshShape& mesh, const Start& start, int64_t final_step);

}  // namespace argosy::resume
