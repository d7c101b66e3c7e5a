#include "h5/call.h"

namespace argosy::h5 {
namespace {

herr_t keep_first(unsigned, const H5E_error2_t* entry, void* text) {
    auto& kept = *static_cast<std::string*>(text);
    if (kept.empty() && entry->desc) kept = entry->desc;
    std::erase(kept, '\n');  // after the time that HDF5 puts into the text of a failed write
    return 0;
}

}  // namespace

void start_library() {
    static const bool started = [] {
        return H5dont_atexit() >= 0 && H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
    }();
    if (!started) throw RunError("HDF5 cannot be started: {}", take_error_text());
}

std::string take_error_text() {
    std::string text;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first,
             &text);  // upward: from the innermost function outwards
    H5Eclear2(H5E_DEFAULT);
    return text.empty() ? "HDF5 gives no reason" : text;
}

}  // namespace argosy::h5
