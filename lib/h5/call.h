// Private to this module: HDF5's header, and its failures as errors of this program. Include it from h5/*.cpp
// only.
#pragma once

#include <hdf5.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace argosy::h5 {

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>,
              "h5/handle.h assumes HDF5 1.10 or later");

/// Call it before the first call into HDF5. HDF5's failures then go into this program's errors, not to
/// stderr. HDF5 also does nothing at exit, where it would crash over a file whose closing failed (a full
/// disk). Data of files that are still open at exit is lost.
void start_library();

/// HDF5's text about the call that just failed, from the function that detected the failure. Clears HDF5's
/// error stack.
std::string take_error_text();

/// Returns the result of an HDF5 call, or throws "<place>: cannot <action>: <HDF5's text>" if it is negative.
template <class Failure = RunError, class Result>
Result check(Result result, std::string_view action, std::string_view place) {
    if (result < 0) throw Failure("{}: cannot {}: {}", place, action, take_error_text());
    return result;
}

}  // namespace argosy::h5
