// Reads a folder of torch.distributed.checkpoint (DCP): `.metadata`, a pickle, and `*.distcp`, whose items it
// lists. An item is a chunk of a tensor, or another object. Any mesh may have written it: only offsets count.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "pytorch/saved_file.h"

namespace argosy::pytorch {

class DistributedCheckpoint : public checkpoint::TensorSource {
  public:
    /// Reads `.metadata`, and checks that each tensor's chunks cover it exactly and that the files are there.
    /// The input is not trusted: DamageError or UserError, naming the tensor and its chunk, for every
    /// inconsistency. `more_classes`, which must outlive this object, are allowed beside known_classes().
    /// Opens no file if `metadata` has the bytes of `.metadata`.
    explicit DistributedCheckpoint(const std::filesystem::path& folder, KnownClasses more_classes = {},
                                   const std::string& metadata = {});
    ~DistributedCheckpoint() override;

    /// All tensors under their keys ("layers.0.attention.wq.weight", "optimizer.state.norm.weight.exp_avg"),
    /// in the order of the files' bytes. bool is UInt8 here.
    const std::vector<checkpoint::TensorInfo>& tensors() const override;
    const std::vector<OtherTensor>& other_tensors() const;
    /// DamageError too if an item is not the chunk that `.metadata` says.
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override;
    const std::string& place() const override;

    /// Keys of the items that are no tensors ("train_state.step"), sorted.
    const std::vector<std::string>& object_keys() const;

    /// The object of this key, which is read from its file at the first call; null if there is none. root()
    /// of the result has the value, and tensors() those that are inside. Any thread may call this. UserError
    /// for a class that is not known.
    const SavedFile* object(const std::string& key) const;

  private:
    struct Contents;
    std::unique_ptr<Contents> contents_;
};

/// Whether a folder has the `.metadata` of a distributed checkpoint.
bool is_distributed_checkpoint(const std::filesystem::path& folder);
/// The bytes of a folder's `.metadata`; UserError if it has none.
std::string read_metadata(const std::filesystem::path& folder);

}  // namespace argosy::pytorch
