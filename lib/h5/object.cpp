#include "h5/object.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/raw_file.h"
#include "h5/dataset.h"

namespace argosy::h5 {
namespace {

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

/// Shortens a system error: HDF5 prints time, addresses and counts on two lines, of which only errno is
/// useful.
std::string shortened(const std::string& text) {
    constexpr std::string_view kMark = "errno = ";
    const size_t at = text.find(kMark);
    if (at == std::string::npos) return text;
    const int reason = std::atoi(text.c_str() + at + kMark.size());
    return fmt::format("{}: {}{}", text.substr(0, text.find(':')), std::strerror(reason), remedy_for(reason));
}

}  // namespace

void Object::set_attribute(const std::string& name, int64_t value) {
    write_attribute(name, file_type(ElementType::I64), &value);
}

void Object::set_attribute(const std::string& name, std::string_view value) {
    const Handle type(check(H5Tcopy(H5T_C_S1), "make a string type", place_), H5Tclose);
    const std::string terminated(value);  // one byte at least: HDF5 has no strings of size zero
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
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first,
             &text);  // upward: from the innermost function outwards
    H5Eclear2(H5E_DEFAULT);
    return text.empty() ? "HDF5 gives no reason" : shortened(text);
}

}  // namespace argosy::h5
