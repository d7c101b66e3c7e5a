#include "base/error.h"

namespace argosy {

void throw_broken_invariant(const char* condition, const char* file, int line, const std::string& message) {
    throw RunError("internal error: {} is false at {}:{}{}{}", condition, file, line,
                   message.empty() ? "" : ": ", message);
}

}  // namespace argosy
