// Turns cuBLASLt's return codes into errors with cuBLASLt's own texts.
#pragma once

#include <string>

namespace argosy::cublas {

/// "CUBLAS_STATUS_NOT_SUPPORTED (the functionality is not supported)", and what may be done about it.
std::string explain(int status);

/// Throws RunError naming `call` unless `status` is CUBLAS_STATUS_SUCCESS.
void check(int status, const char* call);

}  // namespace argosy::cublas
