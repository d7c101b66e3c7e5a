// A signal that arrives before main has installed its handler is not lost if the launcher has blocked it. The
// signal ends a tool, and not a run.
#include "base/program.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "expect_error.h"

namespace argosy {
namespace {

// A process keeps its received stop request, so this is one test.
TEST(StopRequest, ASignalThatTheLauncherBlockedIsDeliveredAndEndsOnlyATool) {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGUSR1);
    ASSERT_EQ(sigprocmask(SIG_BLOCK, &held, nullptr), 0);
    std::raise(SIGUSR1);
    EXPECT_FALSE(stop_requested());
    catch_stop_requests(StopSignals::Scheduler);
    EXPECT_TRUE(stop_requested());
    std::raise(SIGTERM);                         // must not end the process
    EXPECT_NO_THROW(throw_if_stop_requested());  // the ranks of a run agree on its end
    catch_stop_requests(StopSignals::Terminal);
    EXPECT_ERROR(throw_if_stop_requested(), RunError, "stopped by a signal");
}

}  // namespace
}  // namespace argosy
