#include "base/received_signal.h"

#include <csignal>

#include "base/error.h"

namespace argosy {
namespace {

volatile std::sig_atomic_t received = 0;

void remember(int signal) { received = signal; }

}  // namespace

void remember_signals(std::initializer_list<int> signals) {
    struct sigaction action = {};
    action.sa_handler = remember;
    for (const int signal : signals) sigaction(signal, &action, nullptr);
}

int received_signal() { return received; }

void stop_on_signal() {
    if (received != 0) throw RunError("stopped by a signal; nothing is left of the attempt");
}

}  // namespace argosy
