// The version of this build.
#pragma once

namespace argosy {

/// Version and commit, as `--version` prints them: "0.1.0 (1a2b3c4d5e6f)".
const char* version();

}  // namespace argosy
