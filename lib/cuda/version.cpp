#include "base/error.h"
#include "cuda/device.h"

namespace argosy::cuda {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace argosy::cuda
