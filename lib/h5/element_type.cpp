#include "h5/element_type.h"

#include <array>
#include <bit>

#include "h5/call.h"

namespace argosy::h5 {
namespace {

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
