// A few threads for jobs that do not depend on each other.
#pragma once

#include <cstddef>
#include <functional>

namespace argosy::interop {

/// Calls job(i, thread) once for each i below `num_jobs`, in their order, from `num_threads` threads at once.
/// The first exception ends the others after their jobs, and is thrown here.
void run_in_threads(size_t num_jobs, int num_threads,
                    const std::function<void(size_t i, size_t thread)>& job);

}  // namespace argosy::interop
