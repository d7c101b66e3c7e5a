#include "observe/skipped_updates.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::observe {
namespace {

SkippedUpdate sample_update() {
    return {.step = 7,
            .reason = "it stood out",
            .loss = 9.5,
            .grad_norm = 2,
            .loss_zscore = 8,
            .grad_norm_zscore = -0.5,
            .samples = {4, 9, 2, 6},
            .samples_per_data_rank = 2};
}

std::string content(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SkippedUpdates, ALineHasEveryKey) {
    EXPECT_EQ(
        json_line(sample_update()),
        R"({"step":7,"cause":"spike","loss":9.5,"grad_norm":2.0,"loss_zscore":8.0,"grad_norm_zscore":-0.5,)"
        R"("samples_per_data_rank":2,"samples":[4,9,2,6]})");
    SkippedUpdate update = sample_update();
    update.loss = update.loss_zscore = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(json_line(update).substr(0, 76),
              R"({"step":7,"cause":"nonfinite","loss":null,"grad_norm":2.0,"loss_zscore":null)");
}

TEST(SkippedUpdates, RankZeroMakesTheFileAtTheFirstSkippedUpdate) {
    const ScratchFolder folder;
    const auto file = folder / "run" / "skipped_updates.jsonl";
    const MetricsOptions metrics{.dump_folder = folder / "run"};
    SkippedUpdates first(metrics, 0), second(metrics, 1);
    second.write(sample_update());
    EXPECT_FALSE(std::filesystem::exists(folder / "run"));
    for (int i = 1; i <= 2; ++i) first.write(sample_update());
    const std::string line = json_line(sample_update()) + "\n";
    EXPECT_EQ(content(file), line + line);
}

TEST(SkippedUpdates, AFileThatCannotBeWrittenGivesAClearError) {
    const ScratchFolder folder;
    std::ofstream(folder / "run") << "a file in its place";
    SkippedUpdates updates({.dump_folder = folder / "run"}, 0);
    EXPECT_ERROR(updates.write(sample_update()), PathError, (folder / "run").string(), "job.dump_folder");
}

}  // namespace
}  // namespace argosy::observe
