// Replaces lib/ground/base/failpoint.cpp: the linker takes an object from a library only for symbols that are
// still missing.
#include "base/failpoint.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace argosy {
namespace {

/// "name[:count]" from an environment variable; the default count is 1.
struct Wanted {
    std::string name;
    int count = 1;
};

Wanted read_wanted(const char* variable) {
    const char* text = std::getenv(variable);
    Wanted wanted{.name = text ? text : ""};
    if (const size_t colon = wanted.name.find(':'); colon != std::string::npos) {
        wanted.count = std::stoi(wanted.name.substr(colon + 1));
        wanted.name.resize(colon);
    }
    return wanted;
}

}  // namespace

void failpoint(const char* name) {
    static std::atomic<int> passed = 0, passed_to_hang = 0;
    const Wanted end =
        read_wanted("ARGOSY_FAILPOINT");  // each time, since a test that forks sets it in the child
    if (end.name == name && ++passed == end.count) std::raise(SIGKILL);
    const Wanted hang = read_wanted("ARGOSY_HANGPOINT");
    if (hang.name == name && ++passed_to_hang == hang.count) {
        const char* const seconds = std::getenv("ARGOSY_HANG_SECONDS");
        if (seconds == nullptr)
            for (;;) ::pause();
        std::this_thread::sleep_for(std::chrono::duration<double>(std::stod(seconds)));
    }
}

}  // namespace argosy
