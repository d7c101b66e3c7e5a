#include "ops/determinism.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

namespace argosy::ops {

int make_deterministic() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    at::set_num_threads(at::get_num_threads());  // this switches off MKL's choice of their number
    return at::get_num_threads();
}

}  // namespace argosy::ops
