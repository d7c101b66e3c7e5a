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
    int64_t (*make)();
};

int64_t make_bf16() {
    const int64_t id = H5Tcopy(H5T_IEEE_F32LE);
    const size_t sign_bit = 15, exponent_bit = 7, exponent_bits = 8, mantissa_bit = 0, mantissa_bits = 7;
    H5Tset_fields(id, sign_bit, exponent_bit, exponent_bits, mantissa_bit, mantissa_bits);
    H5Tset_precision(id, 16);
    H5Tset_size(id, 2);
    H5Tset_ebias(id, 127);
    return id;
}

// The predefined types are looked up when asked for: HDF5's names for them are calls that start the library.
constexpr std::array kTypes = {
    Row{ElementType::U16, "u16", 2, [] { return H5Tcopy(H5T_STD_U16LE); }},
    Row{ElementType::U32, "u32", 4, [] { return H5Tcopy(H5T_STD_U32LE); }},
    Row{ElementType::I64, "i64", 8, [] { return H5Tcopy(H5T_STD_I64LE); }},
    Row{ElementType::F32, "f32", 4, [] { return H5Tcopy(H5T_IEEE_F32LE); }},
    Row{ElementType::F64, "f64", 8, [] { return H5Tcopy(H5T_IEEE_F64LE); }},
    Row{ElementType::BF16, "bf16", 2, make_bf16},
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
