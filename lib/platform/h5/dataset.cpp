#include "h5/dataset.h"

#include <hdf5.h>

#include <algorithm>

#include "layout/slab.h"

namespace argosy::h5 {
namespace {

std::vector<int64_t> read_shape(const Handle& dataset, const std::string& place) {
    const Handle space(check_read(H5Dget_space(dataset.id()), "read its shape", place), H5Sclose);
    std::vector<hsize_t> sizes(check_read(H5Sget_simple_extent_ndims(space.id()), "count its dims", place));
    check_read(H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr), "read its shape", place);
    return {sizes.begin(), sizes.end()};
}

Handle type_of_scalar(const Handle& attribute, H5T_class_t kind, const char* kind_name,
                      const std::string& place) {
    const Handle space(check_read(H5Aget_space(attribute.id()), "read its shape", place), H5Sclose);
    Handle type(check_read(H5Aget_type(attribute.id()), "read its type", place), H5Tclose);
    if (H5Tget_class(type.id()) != kind || H5Sget_simple_extent_npoints(space.id()) != 1) {
        throw UserError("{} is not {}", place, kind_name);
    }
    return type;
}

std::string read_variable_string(const Handle& attribute, const Handle& type, const std::string& place) {
    char* text = nullptr;
    check_read(H5Aread(attribute.id(), type.id(), &text), "read it", place);
    const std::string copy = text ? text : "";
    H5free_memory(text);
    return copy;
}

}  // namespace

Dataset::Dataset(Handle handle, std::string place)
    : Object(std::move(handle), std::move(place)),
      type_handle_(check_read(H5Dget_type(handle_.id()), "read its type", place_), H5Tclose),
      type_(element_type(type_handle_)),
      shape_(read_shape(handle_, place_)) {}

int64_t Dataset::num_elements() const { return layout::num_elements(shape_); }

bool Dataset::contiguous() const {
    const Handle properties(check_read(H5Dget_create_plist(handle_.id()), "read its layout", place_),
                            H5Pclose);
    return H5Pget_layout(properties.id()) == H5D_CONTIGUOUS && H5Pget_external_count(properties.id()) == 0;
}

int64_t Dataset::offset() const {
    const haddr_t offset = H5Dget_offset(handle_.id());
    if (offset == HADDR_UNDEF) throw RunError("{}: HDF5 has allocated no bytes for its elements", place_);
    return static_cast<int64_t>(offset);
}

void Dataset::write(std::span<const std::byte> elements) {
    check(H5Dwrite(handle_.id(), own_type(elements.size()), H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data()),
          "write it", place_);
}

void Dataset::read(std::span<std::byte> elements) const {
    check_read(
        H5Dread(handle_.id(), own_type(elements.size()), H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data()),
        "read it", place_);
}

int64_t Dataset::own_type(size_t num_bytes) const {
    ARGOSY_CHECK(type_, "{}: its element type is not supported", place_);
    const int64_t expected = num_elements() * size_bytes(*type_);
    ARGOSY_CHECK(static_cast<int64_t>(num_bytes) == expected, "{}: {} bytes for a dataset of {}", place_,
                 num_bytes, expected);
    return type_handle_.id();
}

void Object::set_attribute(const std::string& name, int64_t value) {
    write_attribute(name, file_type(ElementType::Int64), &value);
}

void Object::set_attribute(const std::string& name, std::string_view value) {
    const Handle type(check(H5Tcopy(H5T_C_S1), "make a string type", place_), H5Tclose);
    const std::string terminated(value);  // HDF5 has no strings of size zero, so the terminator is stored
    check(H5Tset_size(type.id(), terminated.size() + 1), "size a string type", place_);
    check(H5Tset_cset(type.id(), H5T_CSET_UTF8), "mark a string as UTF-8", place_);
    write_attribute(name, type, terminated.c_str());
}

int64_t Object::integer_attribute(const std::string& name) const {
    const Handle attribute = open_attribute(name);
    const std::string place = fmt::format("{}: attribute '{}'", place_, name);
    type_of_scalar(attribute, H5T_INTEGER, "an integer", place);
    int64_t value = 0;
    check_read(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), "read it", place);
    return value;
}

std::string Object::string_attribute(const std::string& name) const {
    const Handle attribute = open_attribute(name);
    const std::string place = fmt::format("{}: attribute '{}'", place_, name);
    const Handle type = type_of_scalar(attribute, H5T_STRING, "a string", place);
    if (H5Tis_variable_str(type.id()) > 0) return read_variable_string(attribute, type, place);
    std::string value(H5Tget_size(type.id()), '\0');
    check_read(H5Aread(attribute.id(), type.id(), value.data()), "read it", place);
    value.resize(std::min(value.find('\0'), value.size()));
    return value;
}

void Object::write_attribute(const std::string& name, const Handle& type, const void* value) {
    const std::string place = fmt::format("{}: attribute '{}'", place_, name);
    const Handle space(check(H5Screate(H5S_SCALAR), "make a scalar", place), H5Sclose);
    const Handle attribute(
        check(H5Acreate2(handle_.id(), name.c_str(), type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
              "create it", place),
        H5Aclose);
    check(H5Awrite(attribute.id(), type.id(), value), "write it", place);
}

Handle Object::open_attribute(const std::string& name) const {
    if (check_read(H5Aexists(handle_.id(), name.c_str()), "search its attributes", place_) == 0)
        throw UserError("{} has no attribute '{}'", place_, name);
    return Handle(check_read(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), "open its attribute", place_),
                  H5Aclose);
}

}  // namespace argosy::h5
