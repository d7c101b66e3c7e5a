# Writes OUTPUT, the definition of argosy::version(), from VERSION and the commit of SOURCE_DIR.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
    set(commit "unknown commit")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#include "base/program.h"

namespace argosy {
const char* version() { return "@VERSION@ (@commit@)"; }
}  // namespace argosy
]] @ONLY)
