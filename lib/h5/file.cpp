#include "h5/file.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "h5/call.h"

namespace argosy::h5 {
namespace {

Handle access_plan(const std::string& place) {
    Handle plan(check(H5Pcreate(H5P_FILE_ACCESS), "make an access plan", place), H5Pclose);
    // With a lower bound of 1.10 or later HDF5 marks a file as open for writing, and after a crash refuses
    // it.
    check(H5Pset_libver_bounds(plan.id(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST), "set format bounds",
          place);
    // Closing a file whose datasets are still open fails, instead of leaving it open without a word.
    check(H5Pset_fclose_degree(plan.id(), H5F_CLOSE_SEMI), "set the close degree", place);
    return plan;
}

Handle dataset_plan(const std::string& place) {
    Handle plan(check(H5Pcreate(H5P_DATASET_CREATE), "make a dataset plan", place), H5Pclose);
    check(H5Pset_layout(plan.id(), H5D_CONTIGUOUS), "set the layout", place);
    check(H5Pset_alloc_time(plan.id(), H5D_ALLOC_TIME_EARLY), "set early allocation", place);
    check(H5Pset_fill_time(plan.id(), H5D_FILL_TIME_NEVER), "switch filling off", place);
    return plan;
}

herr_t append_name(hid_t, const char* name, const H5L_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

std::string dataset_place(const std::string& file, const std::string& name) {
    return fmt::format("{}: dataset '{}'", file, name);
}

}  // namespace

File File::create(const std::filesystem::path& path) {
    start_library();
    const Handle plan = access_plan(path.string());
    const int64_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, plan.id());
    return File(Handle(check(id, "create the file", path.string()), H5Fclose), path.string());
}

File File::open(const std::filesystem::path& path) {
    start_library();
    errno = 0;
    if (!std::ifstream(path)) throw UserError("cannot open {}: {}", path.string(), std::strerror(errno));
    if (H5Fis_hdf5(path.c_str()) <= 0) throw UserError("{} is not an HDF5 file", path.string());
    const Handle plan = access_plan(path.string());
    const int64_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, plan.id());
    return File(Handle(check<UserError>(id, "open the file", path.string()), H5Fclose), path.string());
}

Dataset File::create_dataset(const std::string& name, ElementType type, std::span<const int64_t> shape) {
    const std::string place = dataset_place(place_, name);
    const std::vector<hsize_t> sizes(shape.begin(), shape.end());
    const Handle space(check(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                             "set its shape", place),
                       H5Sclose);
    const Handle links(check(H5Pcreate(H5P_LINK_CREATE), "make a link plan", place), H5Pclose);
    check(H5Pset_create_intermediate_group(links.id(), 1), "allow groups in its name", place);
    const Handle plan = dataset_plan(place);
    const Handle elements =
        file_type(type);  // named: its closing before `check` would wipe out HDF5's reason
    const int64_t id =
        H5Dcreate2(handle_.id(), name.c_str(), elements.id(), space.id(), links.id(), plan.id(), H5P_DEFAULT);
    return Dataset(Handle(check(id, "create it", place), H5Dclose), place);
}

Dataset File::open_dataset(const std::string& name) const {
    if (H5Lexists(handle_.id(), name.c_str(), H5P_DEFAULT) <= 0) {  // negative: a group on the way is missing
        take_error_text();
        throw UserError("{} has no dataset '{}'; it holds: {}", place_, name, fmt::join(links(), ", "));
    }
    const std::string place = dataset_place(place_, name);
    const int64_t id = H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT);
    return Dataset(Handle(check<UserError>(id, "open it", place), H5Dclose), place);
}

std::vector<std::string> File::links(const std::string& group) const {
    std::vector<std::string> names;
    check(H5Literate_by_name(handle_.id(), group.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr, append_name,
                             &names, H5P_DEFAULT),
          fmt::format("list the group '{}'", group), place_);
    return names;
}

void File::close() { check(handle_.close(), "finish the file", place_); }

}  // namespace argosy::h5
