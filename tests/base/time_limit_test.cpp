#include "base/time_limit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

namespace argosy {
namespace {

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(PartsWithin, EndsWithTheWork) {
    const auto parts = std::make_shared<int>(0);
    const auto late = parts_within({60, 60}, [parts](const auto& part_done) {
        for (; *parts < 3; ++*parts) part_done();
    });
    EXPECT_FALSE(late);
    EXPECT_EQ(*parts, 3);
}

TEST(PartsWithin, TellsHowManyPartsWereDoneBeforeOneHangs) {
    const auto late = parts_within({0.2, 60}, [](const auto& part_done) {
        part_done();
        part_done();
        sleep(600);
    });
    EXPECT_EQ(late, 2);
}

TEST(PartsWithin, LimitsPartsThatAreNeverLateThemselves) {
    const auto late = parts_within({60, 0.5}, [](const auto& part_done) {
        for (;; sleep(0.05)) part_done();
    });
    ASSERT_TRUE(late);
    EXPECT_GT(*late, 0);
}

TEST(PartsWithin, ThrowsWhatTheWorkThrew) {
    EXPECT_THROW(parts_within({60, 60}, [](const auto&) { throw std::logic_error("broken"); }),
                 std::logic_error);
}

}  // namespace
}  // namespace argosy
