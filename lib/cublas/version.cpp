#include "base/error.h"
#include "cublas/matmul.h"

namespace argosy::cublas {

std::string version_text() {
    const int number = version();
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

}  // namespace argosy::cublas
