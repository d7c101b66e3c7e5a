// Private to this room: one save of torch.save, opened. The pickle describes tensors, whose elements lie in
// entries of the zip.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/element_type.h"
#include "base/raw_file.h"
#include "layout/slab.h"
#include "pytorch/pickle_reader.h"
#include "pytorch/zip.h"

namespace argosy::pytorch {

constexpr int64_t kMaxElements = int64_t{1} << 56;  // of a tensor, so that its bytes do not overflow

/// The size of a type of torch, "torch.float32". `type` is empty if TensorInfo does not have it.
struct TypeOfTorch {
    int64_t num_bytes = 0;
    std::optional<ElementType> type;
};

/// The type of a whole name; none for a type that torch 2.11 does not have.
std::optional<TypeOfTorch> type_of_torch(std::string_view name);

/// The whole name of a type, and that of its storage, which is empty if it has none of its own.
std::string_view name_of_torch(ElementType type);
std::string_view storage_of_torch(ElementType type);

/// The place of a tensor's or a chunk's elements in a file.
struct StoredTensor {
    std::string type_name;  // "torch.float32"
    TypeOfTorch type;
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;  // in elements
    int64_t at = 0;                // the first element's first byte in the file
};

class Archive {
  public:
    /// Throws what SavedFile throws.
    Archive(std::shared_ptr<const RawFile> file, int64_t offset, int64_t length, std::string place,
            KnownClasses more_classes);

    Value root() const { return pickle_->root(); }
    size_t pickle_bytes() const { return pickle_->num_bytes(); }
    const std::string& place() const { return place_; }
    const RawFile& file() const { return *file_; }

    /// The tensor that a value describes; none if it describes something else. DamageError if the elements
    /// are not in the file.
    std::optional<StoredTensor> tensor_of(Value value) const;

  private:
    std::shared_ptr<const RawFile> file_;
    std::string place_, folder_;
    std::map<std::string, ZipEntry, std::less<>> entries_;
    std::optional<Pickle> pickle_;
};

/// Copies the elements that `wanted` has in common with the stored tensor, which is the slab `stored` of a
/// larger one, to `out`, the row-major memory of all of `wanted`. REQUIRES: the slabs have elements in
/// common.
void read_elements(const RawFile& file, const StoredTensor& tensor, const layout::Slab& stored,
                   const layout::Slab& wanted, std::span<std::byte> out);

}  // namespace argosy::pytorch
