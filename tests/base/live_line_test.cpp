#include "base/progress.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>

namespace argosy {
namespace {

/// stderr, and the log on it, is a terminal of 20 columns; `sent` is the text that the terminal got since the
/// last call.
class LiveLineTest : public ::testing::Test {
  protected:
    void SetUp() override {
        int slave = -1;
        ASSERT_EQ(openpty(&master_, &slave, nullptr, nullptr, nullptr), 0);
        resize(20);
        stderr_before_ = dup(STDERR_FILENO);
        dup2(slave, STDERR_FILENO);
        close(slave);
        log_before_ = spdlog::default_logger();
        auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
        spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
        spdlog::set_pattern("%L %v");
    }
    void TearDown() override {
        spdlog::set_default_logger(log_before_);
        dup2(stderr_before_, STDERR_FILENO);
        close(stderr_before_);
        close(master_);
    }

    void resize(unsigned short columns) const {
        const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
        ASSERT_EQ(ioctl(master_, TIOCSWINSZ, &size), 0);
    }
    /// The kernel delivers the text asynchronously: waits for the first part, then until no more comes.
    std::string sent() const {
        constexpr int kMaxMs = 5000, kQuietMs = 50;
        std::string text;
        std::array<char, 4096> bytes{};
        pollfd ready{.fd = master_, .events = POLLIN, .revents = 0};
        while (poll(&ready, 1, text.empty() ? kMaxMs : kQuietMs) > 0) {
            text.append(bytes.data(), static_cast<size_t>(read(master_, bytes.data(), bytes.size())));
        }
        return text;
    }
    static void wait_for_the_next_drawing() { std::this_thread::sleep_for(std::chrono::milliseconds(220)); }

    int master_ = -1, stderr_before_ = -1;
    std::shared_ptr<spdlog::logger> log_before_;
};

TEST_F(LiveLineTest, StaysBelowTheLogUntilItEnds) {
    {
        LiveLine line(80);
        spdlog::info("before");
        EXPECT_EQ(sent(), "\r\x1b[KI before\r\n");
        line.show("step 1");
        EXPECT_EQ(sent(), "\rstep 1\x1b[K");
        spdlog::warn("beside");
        EXPECT_EQ(sent(), "\r\x1b[KW beside\r\n\rstep 1\x1b[K");
    }
    EXPECT_EQ(sent(), "\r\x1b[K");
    spdlog::info("after");
    EXPECT_EQ(sent(), "I after\r\n");
}

TEST_F(LiveLineTest, IsDrawnFiveTimesASecondAndNotStaleBelowAMessage) {
    LiveLine line(80);
    line.show("step 1");
    line.show("step 2");
    EXPECT_EQ(sent(), "\rstep 1\x1b[K");
    spdlog::info("x");
    EXPECT_EQ(sent(), "\r\x1b[KI x\r\n\rstep 2\x1b[K");
    wait_for_the_next_drawing();
    line.show("step 3");
    line.show("step 4");
    EXPECT_EQ(sent(), "\rstep 3\x1b[K");
}

TEST_F(LiveLineTest, LeavesTheLastColumnFreeWhateverTheWidthIsNow) {
    LiveLine line(80);
    const std::string text(100, 'x');
    line.show(text);
    EXPECT_EQ(sent(), "\r" + text.substr(0, 19) + "\x1b[K");
    resize(30);
    wait_for_the_next_drawing();
    line.show(text);
    EXPECT_EQ(sent(), "\r" + text.substr(0, 29) + "\x1b[K");
}

TEST_F(LiveLineTest, OnlyATerminalThatCanRewriteALineCounts) {
    Environment environment;
    environment.terminal = "xterm";
    EXPECT_TRUE(log_is_on_a_terminal(environment));
    spdlog::set_level(spdlog::level::warn);
    EXPECT_FALSE(log_is_on_a_terminal(environment));
    spdlog::set_level(spdlog::level::info);
    for (const char* kind : {"", "dumb"}) {
        environment.terminal = kind;
        EXPECT_FALSE(log_is_on_a_terminal(environment)) << kind;
    }
    environment.terminal = "xterm";
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    dup2(pipe_ends[1], STDERR_FILENO);
    EXPECT_FALSE(log_is_on_a_terminal(environment));
    for (const int end : pipe_ends) close(end);
}

}  // namespace
}  // namespace argosy
