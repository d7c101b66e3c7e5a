#include "base/stop_request.h"

#include <csignal>
#include <initializer_list>

namespace argosy {
namespace {

volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) { received_signal = signal; }

}  // namespace

void catch_stop_requests() {
    struct sigaction action = {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;  // a checkpoint that is being written must not be cut by it
    sigset_t launcher_blocks;
    sigemptyset(&launcher_blocks);
    sigaddset(&launcher_blocks, SIGUSR1);
    for (const int signal : {SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
    sigprocmask(SIG_UNBLOCK, &launcher_blocks, nullptr);
}

bool stop_requested() { return received_signal != 0; }

}  // namespace argosy
