#include "h5/element_type.h"

#include <hdf5.h>

#include <array>
#include <bit>
#include <cstddef>

#include "h5/handle.h"

namespace argosy::h5 {
namespace {

static_assert(std::endian::native == std::endian::little, "elements go from memory to disk as they are");

struct Row {
    ElementType type;
    const char* name;
    uint64_t missing;
    int64_t (*make)();
};

/// An HDF5 type for a float of two bytes. Bit 15 is the sign, the next `exponent_bits` bits are the exponent,
/// and the remaining low bits are the mantissa.
int64_t make_half(size_t exponent_bits) {
    const int64_t id = H5Tcopy(H5T_IEEE_F32LE);
    const size_t sign_bit = 15, mantissa_bits = sign_bit - exponent_bits;
    H5Tset_fields(id, sign_bit, mantissa_bits, exponent_bits, 0, mantissa_bits);
    H5Tset_precision(id, 16);
    H5Tset_size(id, 2);
    H5Tset_ebias(id, (size_t{1} << (exponent_bits - 1)) - 1);
    return id;
}

// The element types of datasets, in the order of FileOrder. `make` looks up HDF5's type when it is used,
// because HDF5's names of predefined types are calls that start the library.
constexpr std::array kTypes = {
    Row{ElementType::UInt8, "u8", 0, [] { return H5Tcopy(H5T_STD_U8LE); }},
    Row{ElementType::UInt16, "u16", 0, [] { return H5Tcopy(H5T_STD_U16LE); }},
    Row{ElementType::UInt32, "u32", 0, [] { return H5Tcopy(H5T_STD_U32LE); }},
    Row{ElementType::Int64, "i64", 0, [] { return H5Tcopy(H5T_STD_I64LE); }},
    Row{ElementType::Float16, "f16", 0x7e00, [] { return make_half(5); }},
    Row{ElementType::BFloat16, "bf16", 0x7fc0, [] { return make_half(8); }},
    Row{ElementType::Float32, "f32", 0x7fc00000, [] { return H5Tcopy(H5T_IEEE_F32LE); }},
    Row{ElementType::Float64, "f64", 0x7ff8000000000000, [] { return H5Tcopy(H5T_IEEE_F64LE); }},
};

const Row& row(ElementType type) {
    for (const Row& each : kTypes) {
        if (each.type == type) return each;
    }
    throw RunError("internal error: element type {} has no row", static_cast<int>(type));
}

}  // namespace

const char* name(ElementType type) { return row(type).name; }
bool FileOrder::operator()(ElementType a, ElementType b) const { return &row(a) < &row(b); }
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
