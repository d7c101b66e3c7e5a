// Opens a checkpoint on all ranks, so that a file that all of them need is read once on each node, and each
// byte is verified by one rank.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "config/job_config.h"
#include "interop/model_source.h"
#include "layout/mesh_shape.h"
#include "resume/joint_work.h"

namespace argosy::resume {

/// Kind of checkpoint that a path must hold.
enum class Want { OwnStep, AnyModel };

/// Files: that shards can be opened and belong to the save. Bytes: every byte.
enum class Check { Files, Bytes };

class JointOpener {
  public:
    /// COLLECTIVE over `control`, as all methods are. `spec` is the run's model, that of checkpoints of other
    /// programs that do not say theirs. REQUIRES: the arguments outlive this object; no work is under way in
    /// `work` when a method is called.
    JointOpener(const config::JobConfig& config, const model::ModelSpec& spec, const layout::MeshShape& mesh,
                comm::Communicator& control, JointWork& work);

    /// Opens the checkpoint on every rank: the one that rank 0 finds at the path. The first rank of each node
    /// reads the list of tensors of a step or of a folder of torch.distributed.checkpoint, and the node's
    /// other ranks have it from that rank. Returns the faults. Throws UserError if ranks see different
    /// checkpoints there, such as copies on the nodes' disks: they would train together with wrong numbers.
    Faults open(const std::filesystem::path& path, Want want, interop::ModelSource& source);

    /// Looks for faults in the files of a step or of a full file. Each rank checks a part of the files, on
    /// the mesh that saved them its own shard.
    Faults check_files(const interop::ModelSource& source, Check check);

  private:
    bool is_first_of_node() const { return node_->rank() == 0; }
    Faults compare_between_ranks(const interop::ModelSource& source, const std::string& manifest);

    const config::JobConfig& config_;
    const model::ModelSpec& spec_;
    const layout::MeshShape& mesh_;
    comm::Communicator& control_;
    JointWork& work_;
    std::unique_ptr<comm::Communicator> node_;  // the ranks of this rank's node
};

}  // namespace argosy::resume
