// One HDF5 file, which is written once or read, but never modified in place. A file that must appear complete
// is created under another name and renamed. All calls come from one thread (h5/dataset.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "h5/dataset.h"
#include "layout/slab.h"

namespace argosy::h5 {

/// Maps the slab `to` of a virtual dataset to the slab `from` of another dataset, the source. The slabs have
/// the same number of elements, in the same order.
struct VirtualSource {
    std::string file;  // relative to the folder of the virtual dataset's own file; ".": that file itself
    std::string dataset;
    layout::Slab to;             // of the virtual dataset
    std::vector<int64_t> shape;  // of the source dataset
    layout::Slab from;           // of the source dataset
};

class File : public Object {
  public:
    /// Creates a file, or empties an existing one. HDF5 leaves the first `user_block_bytes` of the file
    /// unused: 0, 512 or a larger power of two.
    static File create(const std::filesystem::path& path, int64_t user_block_bytes = 0);

    /// Opens for reading. UserError when the file is missing, unreadable or not HDF5; DamageError when it is
    /// truncated or damaged.
    static File open(const std::filesystem::path& path);

    /// Creates a contiguous dataset whose bytes are allocated at once and not filled. `name` may contain
    /// groups ("model/norm"); missing groups are created.
    Dataset create_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape);

    /// Creates a dataset that is a view of other datasets. The other datasets need not exist yet and may be
    /// views themselves. An element reads as `missing_element` if it has no source, or if its source is
    /// missing when it is read. Readers need HDF5 1.10.
    void create_virtual_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape,
                                std::span<const VirtualSource> sources);

    /// UserError, which lists the existing names, when the dataset is absent.
    Dataset open_dataset(const std::string& name) const;

    /// The names in a group, sorted.
    std::vector<std::string> links(const std::string& group = "/") const;

    /// Flushes HDF5's buffers and closes the file; the destructor does so too, but cannot report a failure.
    /// After close() the file has its final length, and bytes may be written at the datasets' offsets.
    /// REQUIRES: the Dataset objects of this file are destroyed.
    void close();

  private:
    Handle new_dataset(const std::string& name, ElementType type, const Handle& space,
                       const Handle& properties);
    File(Handle handle, std::string place) : Object(std::move(handle), std::move(place)) {}
};

}  // namespace argosy::h5
