#include "base/error.h"
#include "nccl/communicator.h"

namespace argosy::nccl {

std::string version_text() {
    const int number = version();
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

}  // namespace argosy::nccl
