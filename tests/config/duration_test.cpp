#include "config/value.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/config_file.h"
#include "config/parse.h"
#include "expect_error.h"

namespace argosy::config {
namespace {

constexpr int64_t kMinute = 60, kHour = 3600, kDay = 86400;

TEST(Duration, ReadsWhatPeopleWrite) {
    const std::pair<const char*, int64_t> texts[] = {{"3600", kHour},
                                                     {"90m", 90 * kMinute},
                                                     {"11h30m", 11 * kHour + 30 * kMinute},
                                                     {"2d", 2 * kDay},
                                                     {"1d2h3m4s", kDay + 2 * kHour + 3 * kMinute + 4},
                                                     {"1h5s", kHour + 5},
                                                     {"0s", 0},
                                                     {"9999999999", 9'999'999'999}};
    for (const auto& [text, seconds] : texts) EXPECT_EQ(duration_from(text), Duration{seconds}) << text;
}

TEST(Duration, RefusesTheRest) {
    for (const char* text : {"", "h", "1x", "1h30", "30m1h", "1m1m", "-5m", "+5m", "1.5h", "1 h", "1h ",
                             "11:30:00", "99999999999", "999999999d", "99999999999999999999"}) {
        EXPECT_FALSE(duration_from(text)) << text;
    }
}

TEST(Duration, PrintsTextThatReadsBack) {
    EXPECT_EQ(duration_text({0}), "0s");
    EXPECT_EQ(duration_text({90 * kMinute}), "1h30m");
    for (const int64_t seconds : {1L, 59L, 60L, 3601L, 86399L, 86400L, 987654L}) {
        EXPECT_EQ(duration_from(duration_text({seconds})), Duration{seconds});
    }
}

JobConfig parsed_file(const std::string& value) {
    const ConfigFile file("[training]\nmax_time = " + value + "\n");
    return parse_command_line({"--config", file.path()}).config;
}

JobConfig parsed_flag(const std::string& word) {
    return parse_command_line({"--training.max_time", word}).config;
}

TEST(Duration, AsAKey) {
    EXPECT_EQ(parsed_file("\"11h30m\"").training.max_time, Duration{11 * kHour + 30 * kMinute});
    EXPECT_EQ(parsed_file("3600").training.max_time, Duration{kHour});
    EXPECT_EQ(parsed_flag("90m").training.max_time, Duration{90 * kMinute});
    EXPECT_EQ(parsed_flag("3600").training.max_time, Duration{kHour});
    EXPECT_ERROR(parsed_flag("soon"), UserError,
                 "training.max_time on the command line must be a duration as 90m", "but is 'soon'");
    EXPECT_ERROR(parsed_flag("0m"), UserError,
                 "training.max_time on the command line is \"0s\"; it must be > 0");
    EXPECT_ERROR(parsed_file("1.5"), UserError, "must be a duration", "the number 1.5");
    EXPECT_ERROR(parsed_file("-3600"), UserError, "must be a duration", "the integer -3600");
}

}  // namespace
}  // namespace argosy::config
