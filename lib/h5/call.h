// Private to this module: HDF5's header, and its failures as errors of ours. Include it from h5/*.cpp only.
#pragma once

#include <hdf5.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace argosy::h5 {

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>,
              "h5/handle.h assumes HDF5 1.10 or later");

/// Before the first call into HDF5: what it says about failures goes into our own errors, not to stderr; and
/// it does nothing at exit, where it would crash over a file whose closing failed (a full disk). What nobody
/// closed is lost.
void start_library();

/// What HDF5 said about the call that just failed, from where it was detected. Clears its error stack.
std::string take_error_text();

/// Returns what an HDF5 call returned, or throws "<place>: cannot <action>: <HDF5's text>" when that is
/// negative.
template <class Failure = RunError, class Result>
Result check(Result result, std::string_view action, std::string_view place) {
    if (result < 0) throw Failure("{}: cannot {}: {}", place, action, take_error_text());
    return result;
}

}  // namespace argosy::h5
