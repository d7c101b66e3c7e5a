// Plans which slab of each tensor a rank writes in a save, and copies these slabs to host memory, from which
// a background thread writes them while training goes on. The plan translates the cuts of a parameter over
// the mesh (layout/param_spec.h) into cuts over the grid of writers (checkpoint/save_plan.h). Ranks that hold
// the same slab share the writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/save_plan.h"
#include "comm/communicator.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "layout/param_spec.h"
#include "resume/run_state.h"

namespace argosy::resume {

/// The ranks of the replicate axis hold the same slab. They write its rows in equal parts if the rows can be
/// divided equally and each part has at least this many bytes. Otherwise one of these ranks, chosen by the
/// tensor's name, writes the whole slab.
inline constexpr int64_t kMinSlabBytes = 64 << 10;

/// The plan of a save of all tensors, as cut_tensor() cuts them. The grid has the axes pipeline, tensor,
/// shard and context together, and replicate, and the plan has format 2.0, if every tensor is cut over these
/// axes in this order, as in dense models. Otherwise the grid has the axes pipeline, outer and inner shard,
/// context, tensor and replicate, and cuts name several of them. Neighbours on the grid have neighbouring slabs.
checkpoint::SavePlan save_plan(std::vector<checkpoint::CutTensor> tensors, const layout::MeshShape& mesh);

/// The number of a rank among the writers of the plan, or among the ranks of another mesh than the plan's.
int writer_of(const checkpoint::SavePlan& plan, const layout::MeshShape& mesh,
              const layout::Coordinates& coordinates);

/// Plans the cuts of `tensor`, which has the shape of the parameter `spec`. The cuts name their axes.
/// REQUIRES: the parameter's cuts are over shard, context and tensor, each axis in one cut.
checkpoint::CutTensor cut_tensor(const checkpoint::TensorInfo& tensor, const layout::ParamSpec& spec,
                                 const layout::MeshShape& mesh);

/// COLLECTIVE over `control`, which has the ranks of the mesh. Returns the tensors of all pipeline ranks;
/// `own` are the tensors of this one, with the cuts of cut_tensor(). A tensor on two pipeline ranks is listed
/// once. Costs one comm::broadcast_text() for each pipeline rank.
std::vector<checkpoint::CutTensor> gather_tensors(const std::vector<checkpoint::CutTensor>& own,
                                                  const layout::MeshShape& mesh, comm::Communicator& control);

/// Returns the slabs that writer `writer` of the plan (this rank) writes, in the order of
/// checkpoint::slabs_of(). HeldSlab::tensor has the plan's element type. HeldSlab::elements is a view of
/// `held`, whose type may differ. REQUIRES: each slab consists of rows of a slab of `held`.
std::vector<HeldSlab> written_slabs(std::span<const HeldSlab> held, const checkpoint::SavePlan& plan,
                                    int writer);

/// Host memory for the copy of one save after another, allocated at the first save and then reused.
class ShardCopy {
  public:
    /// Copies the elements of the slabs, converted to the type in HeldSlab::tensor. From a GPU the copy runs
    /// after the work on the current stream, on a stream of its own unless it converts, and copy() returns at
    /// once: the elements may change after before_change() or wait(), in the order of the current stream.
    /// Returns the bytes of each slab, in order; they are valid from wait() until the next call. REQUIRES: no
    /// copy is under way.
    std::vector<std::span<const std::byte>> copy(const std::vector<HeldSlab>& slabs);
    /// Work that is put on the current stream from now on begins after the copy. Returns at once.
    void before_change();
    /// Blocks the host until the copy is done.
    void wait();
    /// Whether elements are being copied that may not change yet.
    bool under_way() const { return under_way_; }

    int64_t num_bytes() const { return num_bytes_; }

  private:
    struct OnGpu {
        cuda::Stream stream;
        cuda::Event begun{cuda::Timing::Off}, copied{cuda::Timing::Off};
    };
    void make_room(int64_t num_bytes, bool from_gpu);

    std::unique_ptr<std::byte[]> pageable_;
    std::optional<cuda::PinnedMemory> pinned_;  // for slabs on a GPU, if it can be allocated
    std::byte* memory_ = nullptr;               // points to pageable_ or pinned_
    int64_t num_bytes_ = 0;
    std::optional<OnGpu> on_gpu_;  // since the first copy from a GPU
    bool under_way_ = false;
};

}  // namespace argosy::resume
