#include "h5/dataset.h"

#include <array>
#include <bit>

#include "h5/object.h"

namespace argosy::h5 {
namespace {

std::vector<int64_t> read_shape(const Handle& dataset, const std::string& place) {
    const Handle space(check(H5Dget_space(dataset.id()), "read its shape", place), H5Sclose);
    std::vector<hsize_t> sizes(check(H5Sget_simple_extent_ndims(space.id()), "count its dims", place));
    check(H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr), "read its shape", place);
    return {sizes.begin(), sizes.end()};
}

static_assert(std::endian::native == std::endian::little, "elements go from memory to disk as they are");

struct Row {
    ElementType type;
    const char* name;
    int64_t size_bytes;
    uint64_t missing;
    int64_t (*make)();
};

/// A float of two bytes: sign in bit 15, the exponent below it, then the mantissa down to bit 0.
int64_t make_half(size_t exponent_bits) {
    const int64_t id = H5Tcopy(H5T_IEEE_F32LE);
    const size_t sign_bit = 15, mantissa_bits = sign_bit - exponent_bits;
    H5Tset_fields(id, sign_bit, mantissa_bits, exponent_bits, 0, mantissa_bits);
    H5Tset_precision(id, 16);
    H5Tset_size(id, 2);
    H5Tset_ebias(id, (size_t{1} << (exponent_bits - 1)) - 1);
    return id;
}

// The predefined types are looked up on use, because HDF5's names for them are calls that start the library.
constexpr std::array kTypes = {
    Row{ElementType::U8, "u8", 1, 0, [] { return H5Tcopy(H5T_STD_U8LE); }},
    Row{ElementType::U16, "u16", 2, 0, [] { return H5Tcopy(H5T_STD_U16LE); }},
    Row{ElementType::U32, "u32", 4, 0, [] { return H5Tcopy(H5T_STD_U32LE); }},
    Row{ElementType::I64, "i64", 8, 0, [] { return H5Tcopy(H5T_STD_I64LE); }},
    Row{ElementType::F16, "f16", 2, 0x7e00, [] { return make_half(5); }},
    Row{ElementType::BF16, "bf16", 2, 0x7fc0, [] { return make_half(8); }},
    Row{ElementType::F32, "f32", 4, 0x7fc00000, [] { return H5Tcopy(H5T_IEEE_F32LE); }},
    Row{ElementType::F64, "f64", 8, 0x7ff8000000000000, [] { return H5Tcopy(H5T_IEEE_F64LE); }},
};

const Row& row(ElementType type) {
    for (const Row& each : kTypes) {
        if (each.type == type) return each;
    }
    throw RunError("internal error: element type {} has no row", static_cast<int>(type));
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

int64_t size_bytes(ElementType type) { return row(type).size_bytes; }
const char* name(ElementType type) { return row(type).name; }
uint64_t missing_element(ElementType type) { return row(type).missing; }

std::optional<ElementType> element_type_named(std::string_view name) {
    for (const Row& each : kTypes) {
        if (each.name == name) return each.type;
    }
    return std::nullopt;
}

Handle file_type(ElementType type) {
    return Handle(check(row(type).make(), "make an HDF5 type", name(type)), H5Tclose);
}

std::optional<ElementType> element_type(const Handle& type) {
    for (const Row& each : kTypes) {
        if (H5Tequal(type.id(), file_type(each.type).id()) > 0) return each.type;
    }
    return std::nullopt;
}

}  // namespace argosy::h5
