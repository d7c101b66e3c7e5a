// A file of torch.save, or an item of a distributed checkpoint, which has the same form: a zip with a pickle
// and the bytes of storages. FORMAT.md has the details.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "checkpoint/tensor_source.h"
#include "pytorch/pickle_reader.h"
#include "pytorch/value.h"

namespace argosy::pytorch {

/// A tensor whose type TensorInfo does not have: int16, complex64, a quantized one.
struct OtherTensor {
    std::string name;
    std::string type;  // "torch.int16"
};

class SavedFile : public checkpoint::TensorSource {
  public:
    /// Opens a .pth, .pt or .bin. The input is not trusted, and nothing in it is executed: UserError, naming
    /// file and place, for every class that is neither in known_classes() nor in `more_classes` and for the
    /// form before torch 1.6; DamageError for every inconsistency.
    explicit SavedFile(const std::filesystem::path& path, KnownClasses more_classes = {});

    /// The zip at [offset, offset + length) of a file. `place` names it in messages.
    SavedFile(std::shared_ptr<const RawFile> file, int64_t offset, int64_t length, std::string place,
              KnownClasses more_classes = {});

    ~SavedFile() override;

    /// The value that was saved.
    Value root() const;

    /// Each tensor in the root and in its Dicts, Lists and Tuples, in the order of the file's bytes. Keys and
    /// indices on the way are joined by dots: "model.norm.weight". The name is empty if the root is a tensor
    /// itself. bool is UInt8 here.
    const std::vector<checkpoint::TensorInfo>& tensors() const override;
    const std::vector<OtherTensor>& other_tensors() const;
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override;
    const std::string& place() const override;

  private:
    struct Contents;
    std::unique_ptr<const Contents> contents_;
};

/// Whether the file begins as torch.save writes it, today or before 1.6.
bool is_saved_file(const std::filesystem::path& path);

}  // namespace argosy::pytorch
