// A signal that arrives before main has installed its handler is not lost if the launcher has blocked it.
#include "base/program.h"

#include <gtest/gtest.h>

#include <csignal>

namespace argosy {
namespace {

// A process keeps its received stop request, so this is one test.
TEST(StopRequest, ASignalThatTheLauncherBlockedIsDelivered) {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGUSR1);
    ASSERT_EQ(sigprocmask(SIG_BLOCK, &held, nullptr), 0);
    std::raise(SIGUSR1);
    EXPECT_FALSE(stop_requested());
    catch_stop_requests(StopSignals::Scheduler);
    EXPECT_TRUE(stop_requested());
    std::raise(SIGTERM);  // must not end the process
}

}  // namespace
}  // namespace argosy
