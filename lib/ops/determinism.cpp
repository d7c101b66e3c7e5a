#include "ops/determinism.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <cstdlib>

namespace argosy::ops {

int make_deterministic() {
    // Without it LibTorch refuses cuBLAS's products on GPUs; who sets it decides instead.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    at::set_num_threads(at::get_num_threads());  // this switches off MKL's choice of their number
    return at::get_num_threads();
}

}  // namespace argosy::ops
