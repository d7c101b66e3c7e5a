#include "base/error.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/program.h"

namespace argosy {
namespace {

TEST(Error, CarriesItsExitCode) {
    EXPECT_EQ(UserError("{} ranks", 3).code(), ExitCode::BadInput);
    EXPECT_EQ(RunError("disk").code(), ExitCode::Failed);
    EXPECT_EQ(JobError("diverged").code(), ExitCode::Failed);
    EXPECT_EQ(TimeoutError("rank").code(), ExitCode::Watchdog);
    EXPECT_STREQ(UserError("{} ranks", 3).what(), "3 ranks");
}

TEST(Error, KnowsWhetherOneRankReportsForAll) {
    EXPECT_EQ(UserError("key").reach(), Reach::AllRanks);
    EXPECT_EQ(JobError("diverged").reach(), Reach::AllRanks);
    EXPECT_EQ(RunError("disk").reach(), Reach::OneRank);
    EXPECT_EQ(TimeoutError("rank").reach(), Reach::OneRank);
    EXPECT_EQ(TimeoutError(Reach::ReportedByAnother, "rank {}", 3).reach(), Reach::ReportedByAnother);
}

TEST(Error, MessagesGoOnOneLine) {
    EXPECT_EQ(on_one_line("a\r\nb\tc\x1b[31m\x7f"), "a  b c [31m ");
    EXPECT_EQ(on_one_line("\xc3\xa4 b"), "\xc3\xa4 b");
}

TEST(Check, NamesConditionPlaceAndNumbers) {
    const int rows = 3;
    try {
        ARGOSY_CHECK(rows == 4, "rows is {}", rows);
        FAIL() << "did not throw";
    } catch (const RunError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("rows == 4"), std::string::npos) << message;
        EXPECT_NE(message.find("error_test.cpp"), std::string::npos) << message;
        EXPECT_NE(message.find("rows is 3"), std::string::npos) << message;
    }
}

TEST(EndProcess, WritesOutWhatWasPrintedAndLeavesOutWhatRunsAtTheEnd) {
    const auto print_and_end = [](const char* preloaded) {
        setenv("LD_PRELOAD", preloaded, 1);
        std::setvbuf(stderr, nullptr, _IOFBF, BUFSIZ);
        std::atexit([] { std::fputs(", destroyed", stderr); });
        std::fputs("printed", stderr);
        std::exit(end_process(3));
    };
    EXPECT_EXIT(print_and_end(""), ::testing::ExitedWithCode(3), "printed$");
    EXPECT_EXIT(print_and_end("a profiler"), ::testing::ExitedWithCode(3), "printed, destroyed");
}

}  // namespace
}  // namespace argosy
