#include "h5/file.h"

#include <fmt/ranges.h>
#include <hdf5.h>

#include <algorithm>

#include "base/raw_file.h"

namespace argosy::h5 {
namespace {

Handle access_properties(const std::string& place) {
    Handle properties(check(H5Pcreate(H5P_FILE_ACCESS), "make file access properties", place), H5Pclose);
    // The lower bound is below 1.10, because HDF5 marks a file of format 1.10 while the file is open for
    // writing, and refuses to open a file whose mark remains after a crash.
    check(H5Pset_libver_bounds(properties.id(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST), "set format bounds",
          place);
    // Closing a file whose datasets are still open fails, instead of silently leaving the file open.
    check(H5Pset_fclose_degree(properties.id(), H5F_CLOSE_SEMI), "set the close degree", place);
    return properties;
}

Handle creation_properties(int64_t user_block_bytes, const std::string& place) {
    Handle properties(check(H5Pcreate(H5P_FILE_CREATE), "make file creation properties", place), H5Pclose);
    check(H5Pset_userblock(properties.id(), static_cast<hsize_t>(user_block_bytes)), "set its user block",
          place);
    return properties;
}

Handle space_of(std::span<const int64_t> shape, const std::string& place) {
    const std::vector<hsize_t> sizes(shape.begin(), shape.end());
    return Handle(check(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                        "set its shape", place),
                  H5Sclose);
}

Handle dataset_properties(const std::string& place) {
    Handle properties(check(H5Pcreate(H5P_DATASET_CREATE), "make dataset properties", place), H5Pclose);
    // Without a time of creation, the same data makes the same bytes.
    check(H5Pset_obj_track_times(properties.id(), false), "leave out times", place);
    return properties;
}

Handle contiguous_properties(const std::string& place) {
    Handle properties = dataset_properties(place);
    check(H5Pset_layout(properties.id(), H5D_CONTIGUOUS), "set the layout", place);
    check(H5Pset_alloc_time(properties.id(), H5D_ALLOC_TIME_EARLY), "set early allocation", place);
    check(H5Pset_fill_time(properties.id(), H5D_FILL_TIME_NEVER), "switch filling off", place);
    return properties;
}

/// Escapes "%" as "%%", because HDF5 replaces "%b" in a source's name by a running number.
std::string literal_name(const std::string& name) {
    std::string literal;
    for (const char c : name) literal.append(c == '%' ? 2 : 1, c);
    return literal;
}

/// Selects a slab of a space. A scalar needs no selection.
void select(const Handle& space, const layout::Slab& slab, const std::string& place) {
    if (slab.size.empty()) return;
    const std::vector<hsize_t> start(slab.offset.begin(), slab.offset.end());
    const std::vector<hsize_t> block(slab.size.begin(), slab.size.end());
    const std::vector<hsize_t> once(block.size(), 1);
    check(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, once.data(), block.data()),
          "select a source's slab", place);
}

void add_source(const Handle& properties, const Handle& space, const VirtualSource& source,
                const std::string& place) {
    const Handle from = space_of(source.shape, place);
    select(space, source.to, place);
    if (source.from.size != source.shape) select(from, source.from, place);
    check(H5Pset_virtual(properties.id(), space.id(), literal_name(source.file).c_str(),
                         literal_name(source.dataset).c_str(), from.id()),
          "add a source", place);
}

herr_t append_name(hid_t, const char* name, const H5L_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

/// Throws the failure of H5Fopen. HDF5 finds by itself that a file is shorter than its header says.
[[noreturn]] void refuse_to_open(const std::filesystem::path& path) {
    const std::string reason = take_whole_error_text();
    if (reason.starts_with("truncated file")) {
        throw DamageError(
            "{} is truncated: it has {} bytes, fewer than its header says. Copy or make it again",
            path.string(), std::filesystem::file_size(path));
    }
    const bool is_in_use =
        reason.starts_with("file is already open") || reason.starts_with("unable to lock file");
    if (is_in_use) throw UserError("{}: cannot open the file: {}", path.string(), reason);
    refuse_read("open the file", path.string(), reason);
}

std::string dataset_place(const std::string& file, const std::string& name) {
    return fmt::format("{}: dataset '{}'", file, name);
}

}  // namespace

File File::create(const std::filesystem::path& path, int64_t user_block_bytes) {
    start_library();
    const Handle creation = creation_properties(user_block_bytes, path.string());
    const Handle access = access_properties(path.string());
    const int64_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id());
    return File(Handle(check(id, "create the file", path.string()), H5Fclose), path.string());
}

File File::open(const std::filesystem::path& path) {
    start_library();
    // Names what HDF5 does not: a missing file, a folder, a pipe.
    const RawFile file = RawFile::open_to_read(path);
    if (file.size_bytes() == 0) throw DamageError("{} is truncated: it has 0 bytes", path.string());
    if (H5Fis_hdf5(path.c_str()) <= 0) throw UserError("{} is not an HDF5 file", path.string());
    const Handle access = access_properties(path.string());
    const int64_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id());
    if (id < 0) refuse_to_open(path);
    return File(Handle(id, H5Fclose), path.string());
}

Dataset File::create_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape) {
    const std::string place = dataset_place(place_, name);
    return Dataset(new_dataset(name, type, space_of(shape, place), contiguous_properties(place)), place);
}

void File::create_virtual_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape,
                                  std::span<const VirtualSource> sources) {
    const std::string place = dataset_place(place_, name);
    const Handle space = space_of(shape, place);
    const Handle properties = dataset_properties(place);
    const Handle elements = file_type(type);
    const uint64_t missing = missing_element(type);
    check(H5Pset_fill_value(properties.id(), elements.id(), &missing), "set the value of missing elements",
          place);
    for (const VirtualSource& source : sources) add_source(properties, space, source, place);
    new_dataset(name, type, space, properties);
}

Handle File::new_dataset(const std::string& name, ElementType type, const Handle& space,
                         const Handle& properties) {
    const std::string place = dataset_place(place_, name);
    const Handle links(check(H5Pcreate(H5P_LINK_CREATE), "make link properties", place), H5Pclose);
    check(H5Pset_create_intermediate_group(links.id(), 1), "allow groups in its name", place);
    // A named variable: a temporary would be closed before `check`, which would clear HDF5's error text.
    const Handle elements = file_type(type);
    const int64_t id = H5Dcreate2(handle_.id(), name.c_str(), elements.id(), space.id(), links.id(),
                                  properties.id(), H5P_DEFAULT);
    return Handle(check(id, "create it", place), H5Dclose);
}

Dataset File::open_dataset(const std::string& name) const {
    // H5Lexists returns a negative number if a group in the name is missing.
    if (H5Lexists(handle_.id(), name.c_str(), H5P_DEFAULT) <= 0) {
        const std::string reason = take_whole_error_text();
        const std::vector<std::string> names = links();
        if (std::ranges::find(names, name) != names.end())
            refuse_read("find it", dataset_place(place_, name), reason);
        throw UserError("{} has no dataset '{}'; it holds: {}", place_, name, fmt::join(names, ", "));
    }
    const std::string place = dataset_place(place_, name);
    const Handle object(check_read(H5Oopen(handle_.id(), name.c_str(), H5P_DEFAULT), "open it", place),
                        H5Oclose);
    if (H5Iget_type(object.id()) != H5I_DATASET) throw UserError("{}: it is not a dataset", place);
    const int64_t id = H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT);
    return Dataset(Handle(check_read(id, "open it", place), H5Dclose), place);
}

std::vector<std::string> File::links(const std::string& group) const {
    const std::string action = fmt::format("list the group '{}'", group);
    const int64_t id = H5Gopen2(handle_.id(), group.c_str(), H5P_DEFAULT);
    const Handle opened(group == "/" ? check_read(id, action, place_) : check(id, action, place_), H5Gclose);
    std::vector<std::string> names;
    check_read(H5Literate(opened.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, append_name, &names), action,
               place_);
    return names;
}

void File::close() { check(handle_.close(), "finish the file", place_); }

}  // namespace argosy::h5
