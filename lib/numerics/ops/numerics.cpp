#include "ops/numerics.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "base/units.h"
#include "gpu/device.h"

namespace argosy::ops {

int64_t max_temporary_elements(const at::Tensor& x) { return gpu::holds(x) ? 1 << 30 : 16 << 20; }

int64_t rows_at_once(int64_t num_rows, int64_t max_rows) {
    constexpr int64_t kUnit = 256;  // a multiple of the tile sizes of matrix products
    const int64_t part_rows = std::max(kUnit, max_rows / kUnit * kUnit);
    const int64_t num_parts = divide_up(num_rows, part_rows);
    return num_parts <= 1 ? num_rows : (num_rows - 1) / num_parts / kUnit * kUnit + kUnit;
}

int make_deterministic() {
    // In deterministic mode, LibTorch refuses cuBLAS matrix products on GPUs if this variable is not set. A
    // user's value is kept.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    at::set_num_threads(at::get_num_threads());  // switches off MKL's dynamic number of threads
    return at::get_num_threads();
}

}  // namespace argosy::ops
