// Private to this room: the output of a conversion, with one class for each form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "interop/conversion.h"
#include "interop/convert.h"
#include "interop/model_source.h"
#include "interop/tensor_map.h"

namespace argosy::interop {

/// The constructor lays out the files. append() accepts the tensors in any order, but each tensor's bytes in
/// sequence. After finish() the output is complete and durable.
class Target {
  public:
    virtual ~Target() = default;

    /// Appends the slab's bytes to tensor `conversion`. Different threads may append to different tensors at
    /// the same time.
    virtual void append(size_t conversion, const layout::Slab& slab, std::span<const std::byte> bytes) = 0;

    /// Returns the path of the result. REQUIRES: every tensor has all its bytes.
    virtual std::filesystem::path finish() = 0;
};

struct TargetOptions {
    const ModelSource& source;
    const std::vector<TensorConversion>& conversions;
    Content content = Content::Everything;
    std::filesystem::path partial;  // an unused path for a new file or folder
    int num_shards = 1;             // of a sharded checkpoint
    int64_t max_file_bytes = 0;     // limit of a file with several tensors, where a form has several files
    TorchTitanNames names = TorchTitanNames::Current;
    const OptimizerSettings* optimizer = nullptr;  // of a distributed checkpoint with optimizer states
};

/// Writes the tensors of another format, which get the elements of ours by a map.
class MappedTarget : public Target {
  public:
    void append(size_t conversion, const layout::Slab& slab, std::span<const std::byte> bytes) override;

  protected:
    /// UserError if a tensor of theirs would get parts of several types.
    MappedTarget(TensorMap map, const std::vector<TensorConversion>& conversions);

    const TensorMap& map() const { return map_; }
    /// The tensors that get elements, in the order of the conversions.
    const std::vector<checkpoint::TensorInfo>& converted() const { return converted_; }
    bool is_converted(const std::string& theirs) const { return numbers_.contains(theirs); }

  private:
    /// Writes bytes of tensor `number` of converted() from its byte `from` on. Threads may call this at the
    /// same time.
    virtual void write(size_t number, int64_t from, std::span<const std::byte> bytes) = 0;

    TensorMap map_;
    std::vector<checkpoint::TensorInfo> converted_;
    std::vector<const MappedTensor*> ours_;  // of each conversion
    std::map<std::string, size_t> numbers_;  // of theirs in converted_
};

std::unique_ptr<Target> make_sharded_target(const TargetOptions& options);
std::unique_ptr<Target> make_full_target(const TargetOptions& options);
std::unique_ptr<Target> make_hugging_face_target(const TargetOptions& options);
std::unique_ptr<Target> make_distributed_target(const TargetOptions& options);

/// The source's assets as a Hugging Face folder gets them. generation_config.json and tokenizer_config.json
/// get the end of text if they do not say it, because transformers' generate() would not stop without it.
std::vector<checkpoint::Asset> exported_assets(const ModelSource& source);

}  // namespace argosy::interop
