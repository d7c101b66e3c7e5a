#include "cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

namespace argosy::cuda {

// NVTX loads the profiler's library, which this variable names, at the first range.
bool takes_ranges() { return std::getenv("NVTX_INJECTION64_PATH") != nullptr; }
void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

}  // namespace argosy::cuda
