// Named ranges of this thread (NVTX), which a profiler such as Nsight Systems shows beside the GPU's work.
#pragma once

namespace argosy::cuda {

/// Whether a profiler that takes ranges was attached when the process started.
bool takes_ranges();

/// A range begins, within the ranges that are open. Without a profiler, does nothing.
void begin_range(const char* name);
/// The innermost range ends.
void end_range();

}  // namespace argosy::cuda
