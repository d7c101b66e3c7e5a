#include "h5/handle.h"

#include <hdf5.h>

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "base/raw_file.h"

namespace argosy::h5 {
namespace {

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>,
              "h5/handle.h assumes HDF5 1.10 or later");

herr_t keep_first(unsigned, const H5E_error2_t* entry, void* text) {
    auto& kept = *static_cast<std::string*>(text);
    if (kept.empty() && entry->desc) kept = entry->desc;
    return 0;
}

constexpr std::string_view kSystemErrorMark = "errno = ";

/// Shortens HDF5's text about a system error. The text fills two lines with the time, addresses and counts,
/// but only errno is useful.
std::string shortened(const std::string& text) {
    const size_t at = text.find(kSystemErrorMark);
    if (at == std::string::npos) return text;
    const int reason = std::atoi(text.c_str() + at + kSystemErrorMark.size());
    return fmt::format("{}: {}{}", text.substr(0, text.find(':')), std::strerror(reason), remedy_for(reason));
}

}  // namespace

void start_library() {
    static const bool started = H5dont_atexit() >= 0;
    // A thread-safe build of HDF5 keeps the error settings per thread.
    thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
    if (!started || !quiet) throw RunError("HDF5 cannot be started: {}", take_error_text());
}

std::string take_whole_error_text() {
    std::string text;
    // H5E_WALK_UPWARD: from the innermost function outwards.
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
    H5Eclear2(H5E_DEFAULT);
    return text.empty() ? "HDF5 gives no reason" : text;
}

std::string take_error_text() { return shortened(take_whole_error_text()); }

void refuse_read(std::string_view action, std::string_view place) {
    refuse_read(action, place, take_whole_error_text());
}

void refuse_read(std::string_view action, std::string_view place, const std::string& text) {
    if (text.find(kSystemErrorMark) != text.npos)
        throw RunError("{}: cannot {}: {}", place, action, shortened(text));
    throw DamageError("{}: cannot {}: {}; the file is damaged. Copy or make it again", place, action, text);
}

}  // namespace argosy::h5
