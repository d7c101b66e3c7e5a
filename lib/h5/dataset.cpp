#include "h5/dataset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/raw_file.h"

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

Handle type_of_scalar(const Handle& attribute, H5T_class_t kind, const char* kind_name,
                      const std::string& place) {
    const Handle space(check(H5Aget_space(attribute.id()), "read its shape", place), H5Sclose);
    Handle type(check(H5Aget_type(attribute.id()), "read its type", place), H5Tclose);
    if (H5Tget_class(type.id()) != kind || H5Sget_simple_extent_npoints(space.id()) != 1) {
        throw UserError("{} is not {}", place, kind_name);
    }
    return type;
}

std::string read_variable_string(const Handle& attribute, const Handle& type, const std::string& place) {
    char* text = nullptr;
    check(H5Aread(attribute.id(), type.id(), &text), "read it", place);
    const std::string copy = text ? text : "";
    H5free_memory(text);
    return copy;
}

herr_t keep_first(unsigned, const H5E_error2_t* entry, void* text) {
    auto& kept = *static_cast<std::string*>(text);
    if (kept.empty() && entry->desc) kept = entry->desc;
    return 0;
}

/// Shortens HDF5's text about a system error. The text fills two lines with the time, addresses and counts,
/// but only errno is useful.
std::string shortened(const std::string& text) {
    constexpr std::string_view kMark = "errno = ";
    const size_t at = text.find(kMark);
    if (at == std::string::npos) return text;
    const int reason = std::atoi(text.c_str() + at + kMark.size());
    return fmt::format("{}: {}{}", text.substr(0, text.find(':')), std::strerror(reason), remedy_for(reason));
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
    check(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), "read it", place);
    return value;
}

std::string Object::string_attribute(const std::string& name) const {
    const Handle attribute = open_attribute(name);
    const std::string place = fmt::format("{}: attribute '{}'", place_, name);
    const Handle type = type_of_scalar(attribute, H5T_STRING, "a string", place);
    if (H5Tis_variable_str(type.id()) > 0) return read_variable_string(attribute, type, place);
    std::string value(H5Tget_size(type.id()), '\0');
    check(H5Aread(attribute.id(), type.id(), value.data()), "read it", place);
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
    if (H5Aexists(handle_.id(), name.c_str()) <= 0) throw UserError("{} has no attribute '{}'", place_, name);
    return Handle(check(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), "open its attribute", place_),
                  H5Aclose);
}

void start_library() {
    static const bool started = H5dont_atexit() >= 0;
    // A thread-safe build of HDF5 keeps the error settings per thread.
    thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
    if (!started || !quiet) throw RunError("HDF5 cannot be started: {}", take_error_text());
}

std::string take_error_text() {
    std::string text;
    // H5E_WALK_UPWARD: from the innermost function outwards.
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
    H5Eclear2(H5E_DEFAULT);
    return text.empty() ? "HDF5 gives no reason" : shortened(text);
}

}  // namespace argosy::h5
