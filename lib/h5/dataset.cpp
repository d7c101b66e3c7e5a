#include "h5/dataset.h"

#include "h5/call.h"

namespace argosy::h5 {
namespace {

std::vector<int64_t> read_shape(const Handle& dataset, const std::string& place) {
    const Handle space(check(H5Dget_space(dataset.id()), "read its shape", place), H5Sclose);
    std::vector<hsize_t> sizes(check(H5Sget_simple_extent_ndims(space.id()), "count its dims", place));
    check(H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr), "read its shape", place);
    return {sizes.begin(), sizes.end()};
}

}  // namespace

Dataset::Dataset(Handle handle, std::string place)
    : Object(std::move(handle), std::move(place)),
      type_handle_(check(H5Dget_type(handle_.id()), "read its type", place_), H5Tclose),
      type_(element_type(type_handle_)),
      shape_(read_shape(handle_, place_)) {}

int64_t Dataset::num_elements() const {
    int64_t product = 1;
    for (const int64_t size : shape_) product *= size;
    return product;
}

bool Dataset::contiguous() const {
    const Handle plan(check(H5Dget_create_plist(handle_.id()), "read its layout", place_), H5Pclose);
    return H5Pget_layout(plan.id()) == H5D_CONTIGUOUS && H5Pget_external_count(plan.id()) == 0;
}

int64_t Dataset::offset() const {
    const haddr_t offset = H5Dget_offset(handle_.id());
    if (offset == HADDR_UNDEF) throw RunError("{}: its elements have no place in the file", place_);
    return static_cast<int64_t>(offset);
}

void Dataset::write(std::span<const std::byte> elements) {
    check(H5Dwrite(handle_.id(), own_type(elements.size()), H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data()),
          "write it", place_);
}

void Dataset::read(std::span<std::byte> elements) const {
    check(H5Dread(handle_.id(), own_type(elements.size()), H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data()),
          "read it", place_);
}

int64_t Dataset::own_type(size_t num_bytes) const {
    ARGOSY_CHECK(type_, "{}: its element type is none of ours", place_);
    const int64_t expected = num_elements() * size_bytes(*type_);
    ARGOSY_CHECK(static_cast<int64_t>(num_bytes) == expected, "{}: {} bytes given for {}", place_, num_bytes,
                 expected);
    return type_handle_.id();
}

}  // namespace argosy::h5
