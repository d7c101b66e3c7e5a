// One HDF5 file: written once, or read, never modified in place. A writer whose file must appear whole
// creates it under another name and renames it. One thread (see h5/dataset.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "h5/dataset.h"
#include "layout/slab.h"

namespace argosy::h5 {

/// The source of a slab of a virtual dataset: a slab with as many elements, in the same order, of another
/// dataset.
struct VirtualSource {
    std::string file;  // relative to the folder of the virtual dataset's own file; ".": that file itself
    std::string dataset;
    layout::Slab to;             // of the virtual dataset
    std::vector<int64_t> shape;  // of the source dataset
    layout::Slab from;           // of the source dataset
};

class File : public Object {
  public:
    /// Creates a file, or empties an existing one. HDF5 does not use the first `user_block_bytes`: 0, 512 or
    /// a larger power of two.
    static File create(const std::filesystem::path& path, int64_t user_block_bytes = 0);

    /// Opens for reading. UserError when the file is missing, unreadable, truncated or not HDF5.
    static File open(const std::filesystem::path& path);

    /// Creates a contiguous dataset whose bytes are allocated at once and not filled. `name` may contain
    /// groups ("model/norm"); missing ones are made.
    Dataset create_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape);

    /// Creates a dataset that is a view of other datasets, which need not exist yet and may be views.
    /// Elements without a source, or whose source is missing at the time of reading, are `missing_element`.
    /// Readers need HDF5 1.10.
    void create_virtual_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape,
                                std::span<const VirtualSource> sources);

    /// UserError, which lists the existing names, when the dataset is absent.
    Dataset open_dataset(const std::string& name) const;

    /// The names in a group, sorted.
    std::vector<std::string> links(const std::string& group = "/") const;

    /// Flushes HDF5's buffers and closes; the destructor does too, but cannot report a failure. After this
    /// call the file has its final length, and bytes may be written at the datasets' offsets. REQUIRES: the
    /// Dataset objects of this file are destroyed.
    void close();

  private:
    Handle new_dataset(const std::string& name, ElementType type, const Handle& space, const Handle& plan);
    File(Handle handle, std::string place) : Object(std::move(handle), std::move(place)) {}
};

}  // namespace argosy::h5
