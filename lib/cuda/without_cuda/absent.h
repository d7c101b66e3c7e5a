// The error of every CUDA call in a build without CUDA.
#pragma once

#include "base/error.h"

namespace argosy::cuda {

[[noreturn]] inline void absent() {
    throw UserError("this build has no CUDA: configure it with -DARGOSY_CUDA=ON (preset cuda)");
}

}  // namespace argosy::cuda
