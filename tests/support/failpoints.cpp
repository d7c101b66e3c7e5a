// In place of lib/base/failpoint.cpp's: the linker takes a library's object only for names that are still
// missing.
#include "base/failpoint.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>

namespace argosy {
namespace {

/// "name[:count]" of ARGOSY_FAILPOINT; the count is 1 where none is given.
struct Wanted {
    std::string name;
    int count = 1;
};

Wanted read_wanted() {
    const char* text = std::getenv("ARGOSY_FAILPOINT");
    Wanted wanted{.name = text ? text : ""};
    if (const size_t colon = wanted.name.find(':'); colon != std::string::npos) {
        wanted.count = std::stoi(wanted.name.substr(colon + 1));
        wanted.name.resize(colon);
    }
    return wanted;
}

}  // namespace

void failpoint(const char* name) {
    const Wanted wanted = read_wanted();  // each time, since a test that forks sets it in the child
    static std::atomic<int> passed = 0;
    if (wanted.name == name && ++passed == wanted.count) std::raise(SIGKILL);
}

}  // namespace argosy
