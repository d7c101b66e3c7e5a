#include "observe/metrics_writer.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "observe/sample_metrics.h"
#include "observe/step_lines.h"
#include "scratch_folder.h"

namespace argosy::observe {
namespace {

namespace fs = std::filesystem;

/// Each test has its own folder and captures the log.
class MetricsWriterTest : public ::testing::Test {
  protected:
    void SetUp() override {
        auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_);
        before_ = spdlog::default_logger();
        spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
        spdlog::set_pattern("%v");
    }
    void TearDown() override { spdlog::set_default_logger(before_); }

    MetricsOptions options(int64_t final_step = 10, int64_t log_freq = 4) const {
        return {.dump_folder = (folder_ / "run").string(), .log_freq = log_freq, .final_step = final_step};
    }
    fs::path file() const { return folder_ / "run" / "metrics.jsonl"; }

    /// The steps in the file, or those of lines of which `counts`; every line must be a JSON object.
    std::vector<int64_t> steps(bool (*counts)(const nlohmann::json&) = nullptr) const {
        std::vector<int64_t> found;
        std::ifstream lines(file());
        for (std::string line; std::getline(lines, line);) {
            const auto object = nlohmann::json::parse(line);
            if (counts == nullptr || counts(object)) found.push_back(object.at("step").get<int64_t>());
        }
        return found;
    }

    /// The step of each line of the log: "step     4/10  ..." gives 4.
    std::vector<int64_t> logged_steps() const {
        std::vector<int64_t> found;
        std::istringstream lines(log_.str());
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("step ")) found.push_back(std::stoll(line.substr(5)));
        }
        return found;
    }

    std::string note_on(const std::string& lines, int64_t step);

    ScratchFolder folder_;
    std::ostringstream log_;
    std::shared_ptr<spdlog::logger> before_;
};

using Steps = std::vector<int64_t>;

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "did not throw";
}

TEST_F(MetricsWriterTest, WritesEachStepAtOnceAndLogsSome) {
    MetricsWriter writer(options(), sample_job(), 0);
    for (int64_t step = 1; step <= 10; ++step) {
        writer.write(sample_step(step));
        EXPECT_EQ(steps().size(), step);
    }
    EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    EXPECT_EQ(logged_steps(), (Steps{1, 4, 8, 10}));
}

TEST_F(MetricsWriterTest, LinesOfLoggedStepsCountTheTokensOfExperts) {
    MetricsWriter writer(options(), sample_job(), 0);
    for (int64_t step = 1; step <= 10; ++step) {
        StepMetrics metrics = sample_step(step);
        metrics.experts = sample_experts();
        writer.write(metrics);
    }
    EXPECT_EQ(steps([](const auto& line) { return line["experts"].contains("counts"); }), logged_steps());
}

TEST_F(MetricsWriterTest, ARestartedRunAppends) {
    {
        MetricsWriter writer(options(), sample_job(), 0);
        for (const int64_t step : {1, 2, 3}) writer.write(sample_step(step));
    }
    MetricsWriter writer(options(), sample_job(), 0);
    for (const int64_t step : {3, 4, 5}) writer.write(sample_step(step));
    EXPECT_EQ(steps(), (Steps{1, 2, 3, 3, 4, 5}));
    EXPECT_EQ(logged_steps(), (Steps{1, 3, 3, 4}))
        << "the first run's last step and the second run's first step are logged";
}

TEST_F(MetricsWriterTest, WarnsOnceOfAllocatorRetries) {
    MetricsWriter writer(options(/*final_step=*/100, /*log_freq=*/100), sample_job(), /*rank=*/3);
    for (int64_t step = 1; step <= 5; ++step) {
        StepMetrics metrics = sample_step(step);
        metrics.memory.allocator = {.peak_reserved_bytes = int64_t{1} << 31,
                                    .num_retries = step < 3 ? 0 : step};
        writer.write(metrics);
    }
    EXPECT_TRUE(log_.str().starts_with(
        "by step 3 the GPU's memory was full 3 times, with 2.000 GiB reserved and at most 1.500 "
        "GiB of tensors: "))
        << log_.str();
    EXPECT_EQ(std::ranges::count(log_.str(), '\n'), 1) << log_.str();
}

/// The log's message about existing lines when a run begins with `step`.
std::string MetricsWriterTest::note_on(const std::string& lines, int64_t step) {
    fs::create_directories(file().parent_path());
    write_file(file(), lines);
    MetricsWriter writer(options(), sample_job(), 0);
    log_.str("");
    writer.write(sample_step(step));
    const std::string note = log_.str();
    return note.substr(0, note.rfind("step ", note.find("  loss")));
}

TEST_F(MetricsWriterTest, ReportsLinesOfAnotherRun) {
    const std::string lines = "{\"step\":1}\n{\"step\":9}\n";
    const std::string path = file().string();
    const auto warning = [&](int64_t step) {
        return fmt::format(
            "{} has steps up to 9 of an earlier run; this run appends its steps, from step {} on. Set "
            "job.dump_folder to another folder to keep runs apart\n",
            path, step);
    };
    EXPECT_EQ(note_on(lines, 1), warning(1));
    EXPECT_EQ(note_on(lines, 11), warning(11));
    EXPECT_EQ(note_on(lines, 10), "");
    EXPECT_EQ(note_on(lines, 7), path + " has steps up to 9; this run repeats those from 7 on\n");
    EXPECT_EQ(note_on("", 1), "");
}

TEST_F(MetricsWriterTest, TheLastWholeLineCounts) {
    const auto last = [&](const std::string& lines) {
        fs::create_directories(file().parent_path());
        write_file(file(), lines);
        return last_step(file());
    };
    EXPECT_EQ(last_step(file()), std::nullopt);
    EXPECT_EQ(last(""), std::nullopt);
    EXPECT_EQ(last("{\"step\":4}"), 4);
    EXPECT_EQ(last("{\"step\":4}\n{\"step\":5,\"lo"), 4);
    EXPECT_EQ(last("{\"step\":4}\nno JSON\n[5]\n{\"loss\":2}\n{\"step\":\"6\"}\n"), 4);
    std::string long_file;
    for (int step = 1; step <= 30000; ++step) {
        long_file += fmt::format(R"({{"step":{},"pad":"{:100}"}})", step, "") + "\n";
    }
    EXPECT_EQ(last(long_file), 30000);
}

TEST_F(MetricsWriterTest, AResumedRunHasOneLinePerStep) {
    {
        MetricsWriter writer(options(), sample_job(), 0);
        for (const int64_t step : {1, 2, 3, 4}) writer.write(sample_step(step));
    }
    std::ofstream(file(), std::ios::app) << R"({"step":5,"lo)";  // as a killed process leaves it
    MetricsOptions resumed = options();
    resumed.last_own_step = 2;
    log_.str("");
    MetricsWriter writer(resumed, sample_job(), 0);
    EXPECT_EQ(log_.str(), file().string() + ": the last 3 lines, of steps after 2, are now in " +
                              file().string() + ".aside\n");
    EXPECT_EQ(steps(), (Steps{1, 2}));
    log_.str("");
    for (const int64_t step : {3, 4, 5}) writer.write(sample_step(step));
    EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5}));
    EXPECT_EQ(log_.str().find("earlier run"), std::string::npos);
}

TEST_F(MetricsWriterTest, AnIncompleteLineOfTheLastOwnStepKeepsItsWholeValues) {
    {
        MetricsWriter writer(options(), sample_job(), 0);
        for (const int64_t step : {1, 2}) writer.write(sample_step(step));
    }
    const std::string whole = read_file(file());
    const std::string last = whole.substr(whole.find('\n') + 1);
    MetricsOptions resumed = options();
    resumed.last_own_step = 2;
    for (size_t size = last.find(',') + 1; size < last.size(); ++size) {
        write_file(file(), whole.substr(0, whole.size() - last.size() + size));
        log_.str("");
        MetricsWriter writer(resumed, sample_job(), 0);
        writer.write(sample_step(3));
        ASSERT_EQ(steps(), (Steps{1, 2, 3})) << size;
        ASSERT_EQ(log_.str().find("earlier run"), std::string::npos) << log_.str();
        ASSERT_EQ(log_.str().find("incomplete") == std::string::npos, size == last.size() - 1) << log_.str();
    }
    EXPECT_FALSE(fs::exists(file().string() + ".aside"));
}

TEST_F(MetricsWriterTest, StepsThatAResumedRunLacksAreReported) {
    fs::create_directories(file().parent_path());
    write_file(file(), "{\"step\":1}\n{\"st");
    MetricsOptions resumed = options();
    resumed.last_own_step = 3;
    MetricsWriter writer(resumed, sample_job(), 0);
    EXPECT_NE(log_.str().find("lacks the lines of steps 2 to 3: "), std::string::npos) << log_.str();
    log_.str("");
    writer.write(sample_step(4));
    EXPECT_EQ(log_.str().find("earlier run"), std::string::npos) << log_.str();
    EXPECT_EQ(steps(), (Steps{1, 4}));
}

TEST_F(MetricsWriterTest, AFolderThatIsRemovedDuringTheRunIsMadeAgain) {
    MetricsOptions with_events = options();
    with_events.tensorboard_folder = "tb";
    MetricsWriter writer(with_events, sample_job(), 0);
    writer.write(sample_step(1));
    fs::remove_all(folder_ / "run");
    log_.str("");
    for (const int64_t step : {2, 3, 4}) writer.write(sample_step(step));
    EXPECT_EQ(steps(), (Steps{2, 3, 4}));
    EXPECT_NE(log_.str().find(file().string() + "' was removed during this run"), std::string::npos);
    const fs::path events = fs::directory_iterator(folder_ / "run" / "tb")->path();
    EXPECT_NE(read_file(events).find("brain.Event:2"), std::string::npos) << "a whole event file";
}

TEST_F(MetricsWriterTest, OnlyLaterStepsAtTheEndAreMovedAside) {
    const auto left = [&](const std::string& lines, int64_t step) {
        fs::create_directories(file().parent_path());
        write_file(file(), lines);
        set_aside_steps_after(step, file());
        return read_file(file());
    };
    const std::string one = "{\"step\":1,\"a\":[{\"step\":9}]}\n", two = "{\"a\":1,\"step\":2}\n",
                      three = "{\"step\":3}\n";
    EXPECT_EQ(left("", 5), "");
    EXPECT_EQ(left(one + two + three, 5), one + two + three);
    EXPECT_EQ(left(one + two + three, 2), one + two);
    EXPECT_EQ(left(one + two + three, 0), "");
    EXPECT_EQ(left(one + two + three + one + two + three, 1), one + two + three + one)
        << "lines of an earlier run stay";
    EXPECT_EQ(left(one + three + "none of ours\n" + three, 1), one);
    EXPECT_EQ(left(one + "none of ours\n" + two, 1), one + "none of ours\n");
    EXPECT_EQ(left(one + "{\"step\":2", 1), one) << "an incomplete line is moved";
    EXPECT_EQ(left(one + "{\"step\":2", 7), one);
    EXPECT_EQ(left(one + "{\"step\":2}", 2), one + "{\"step\":2}")
        << "a complete line without a newline stays";
    EXPECT_EQ(left("no lines of steps\n", 1), "no lines of steps\n");
    fs::remove(file().string() + ".aside");
    left(one + two + three, 1);
    left(one + "{\"step\":2", 1);
    EXPECT_EQ(read_file(file().string() + ".aside"), two + three + "{\"step\":2\n") << "nothing is lost";
    set_aside_steps_after(1, folder_ / "absent");
    set_aside_steps_after(1, "/dev/null");
}

TEST_F(MetricsWriterTest, WritesTensorBoardEventsAtLoggedSteps) {
    MetricsOptions with_events = options();
    with_events.tensorboard_folder = "tb";
    const auto size_of_events = [&] {
        return fs::file_size(fs::directory_iterator(folder_ / "run" / "tb")->path());
    };
    MetricsWriter writer(with_events, sample_job(), 0);
    std::vector<int64_t> grown;
    for (int64_t step = 1; step <= 10; ++step) {
        const auto before = size_of_events();
        writer.write(sample_step(step));
        if (size_of_events() > before) grown.push_back(step);
    }
    EXPECT_EQ(grown, (Steps{1, 4, 8, 10}));
    EXPECT_EQ(grown, logged_steps());
}

TEST_F(MetricsWriterTest, StartsANewLineIfTheFileEndsWithoutANewline) {
    fs::create_directories(file().parent_path());
    std::ofstream(file()) << R"({"step":1})";
    MetricsWriter writer(options(), sample_job(), 0);
    writer.write(sample_step(2));
    EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(MetricsWriterTest, OtherRanksWriteNothing) {
    MetricsWriter writer(options(), sample_job(), 1);
    writer.write(sample_step(1));
    EXPECT_FALSE(fs::exists(folder_ / "run"));
    EXPECT_EQ(log_.str(), "");
}

TEST_F(MetricsWriterTest, ALogLineIsTheMeanSinceTheLineBefore) {
    MetricsWriter writer(options(), sample_job(), 0);
    StepMetrics slow = sample_step(1);
    slow.times.total_ms = 1e6;
    slow.memory.peak_bytes *= 8;
    writer.write(slow);
    log_.str("");
    for (int64_t step = 2; step <= 4; ++step) {
        StepMetrics metrics = sample_step(step);
        metrics.times.total_ms = step == 4 ? 4096 : 2048;  // 3 x 4096 tokens in 8.192 s
        if (step == 3) metrics.memory.peak_bytes *= 2;
        writer.write(metrics);
    }
    EXPECT_NE(log_.str().find(" 1.5k tok/s"), std::string::npos) << log_.str();
    EXPECT_NE(log_.str().find(" 3.00 GiB"), std::string::npos) << log_.str();
    EXPECT_NE(log_.str().find("exposed   9%"), std::string::npos) << log_.str();
    // 6 steps are left, at a mean of (2048 + 2048 + 4096) / 3 ms each. The slow first step does not count.
    EXPECT_NE(log_.str().find("ETA 0:00:16"), std::string::npos) << log_.str();
}

TEST_F(MetricsWriterTest, TheTimeLeftIsAtMostTheRunsLimit) {
    MetricsWriter writer(options(1000, 1), sample_job(), 0);
    StepMetrics metrics = sample_step(1);
    metrics.seconds_allowed = 62;
    writer.write(metrics);
    EXPECT_NE(log_.str().find("ETA 0:01:02"), std::string::npos) << log_.str();
}

TEST_F(MetricsWriterTest, AFullDiskGivesAClearError) {
    fs::create_directories(file().parent_path());
    fs::create_symlink("/dev/full", file());
    MetricsWriter writer(options(), sample_job(), 0);
    const std::string message = message_of([&] { writer.write(sample_step(1)); });
    EXPECT_NE(message.find(file().string()), std::string::npos) << message;
    EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
}

TEST_F(MetricsWriterTest, AWriteThatFailsHalfwayLeavesWholeLines) {
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old_limit{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
    {
        MetricsWriter writer(options(), sample_job(), 0);
        writer.write(sample_step(1));
        const rlimit half_a_line_more{fs::file_size(file()) * 3 / 2, old_limit.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &half_a_line_more), 0);
        const std::string message = message_of([&] { writer.write(sample_step(2)); });
        setrlimit(RLIMIT_FSIZE, &old_limit);
        EXPECT_NE(message.find("File too large"), std::string::npos) << message;
        EXPECT_EQ(steps(), (Steps{1}));
        writer.write(sample_step(3));
    }
    std::signal(SIGXFSZ, old_handler);
    EXPECT_EQ(steps(), (Steps{1, 3}));
}

TEST_F(MetricsWriterTest, AFolderThatCannotBeMadeGivesAClearError) {
    std::ofstream(folder_ / "run") << "a file in its place";
    const std::string message = message_of([&] { MetricsWriter(options(), sample_job(), 0); });
    EXPECT_NE(message.find((folder_ / "run").string()), std::string::npos) << message;
    EXPECT_NE(message.find("job.dump_folder"), std::string::npos) << message;
}

TEST_F(MetricsWriterTest, AFileThatCannotBeOpenedGivesAClearError) {
    fs::create_directories(file());  // a folder with the file's name: even root cannot open it
    const std::string message = message_of([&] { MetricsWriter(options(), sample_job(), 0); });
    EXPECT_NE(message.find(file().string()), std::string::npos) << message;
    EXPECT_NE(message.find("Is a directory"), std::string::npos) << message;
}

}  // namespace
}  // namespace argosy::observe
