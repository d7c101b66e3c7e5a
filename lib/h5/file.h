// One HDF5 file. Written once or read, never modified in place: what must appear whole is created under
// another name and renamed by its writer. See h5/object.h: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "h5/dataset.h"
#include "h5/object.h"

namespace argosy::h5 {

/// A box of a virtual dataset, and the dataset of the box's shape that holds its elements.
struct VirtualSource {
    std::string file;  // relative to the folder of the virtual dataset's own file
    std::string dataset;
    std::vector<int64_t> offset, size;
};

class File : public Object {
  public:
    /// A new file, or an old one emptied. HDF5 leaves the first `user_block_bytes` to others: 0, 512 or a
    /// larger power of two.
    static File create(const std::filesystem::path& path, int64_t user_block_bytes = 0);

    /// For reading. UserError when the file is missing, unreadable, truncated or not HDF5.
    static File open(const std::filesystem::path& path);

    /// A contiguous dataset with its bytes allocated at once and not filled; `name` may hold groups
    /// ("model/norm"), made where they are missing.
    Dataset create_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape);

    /// A dataset that shows what lies in datasets of other files, which need not be there yet. Elements that
    /// no source holds, or whose source is missing when they are read, are `missing_element`. Readers need
    /// HDF5 1.10.
    void create_virtual_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape,
                                std::span<const VirtualSource> sources);

    /// UserError, with the names that are there, when it is absent.
    Dataset open_dataset(const std::string& name) const;

    /// The names in a group, sorted.
    std::vector<std::string> links(const std::string& group = "/") const;

    /// Writes out what HDF5 still holds and closes; the destructor does too, but cannot say that it failed.
    /// After it the file has its final length, and bytes may be written at the datasets' offsets.
    /// REQUIRES: the datasets of this file are gone.
    void close();

  private:
    Handle new_dataset(const std::string& name, ElementType type, const Handle& space, const Handle& plan);
    File(Handle handle, std::string place) : Object(std::move(handle), std::move(place)) {}
};

}  // namespace argosy::h5
