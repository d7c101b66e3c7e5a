#include "base/error.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace argosy
