// Runs independent jobs in a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace argosy::interop {

/// Calls job(i, thread) once for each i below `num_jobs`, in ascending order, from `num_threads` threads.
/// After the first exception the other threads finish their current jobs; the exception is then thrown here.
void run_in_threads(size_t num_jobs, int num_threads,
                    const std::function<void(size_t i, size_t thread)>& job);

}  // namespace argosy::interop
