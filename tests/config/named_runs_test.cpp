// The runs of configs/ parse, explain their degrees, and are rows of the README's table.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/parse.h"

namespace argosy::config {
namespace {

std::vector<std::filesystem::path> named_runs() {
    std::vector<std::filesystem::path> runs;
    for (const auto& entry : std::filesystem::directory_iterator(ARGOSY_CONFIGS)) {
        if (entry.path().extension() == ".toml") runs.push_back(entry.path());
    }
    return runs;
}

std::string content_of(const std::filesystem::path& path) {
    std::ostringstream content;
    content << std::ifstream(path).rdbuf();
    return content.str();
}

TEST(NamedRuns, Parse) {
    EXPECT_GE(named_runs().size(), 8U);
    for (const auto& path : named_runs()) {
        const JobConfig config = parse_command_line({"--config", path.string()}).config;
        EXPECT_TRUE(config.model.name && config.model.flavor) << path;
        EXPECT_EQ(config.job.dump_folder, "./outputs/" + path.stem().string());
        EXPECT_NE(config.job.description, "") << path;
    }
}

TEST(NamedRuns, BeginWithTheReasonOfTheirDegrees) {
    for (const auto& path : named_runs()) EXPECT_EQ(content_of(path).front(), '#') << path;
}

TEST(NamedRuns, AreRowsOfTheReadme) {
    const std::string readme = content_of(std::filesystem::path(ARGOSY_CONFIGS) / "README.md");
    for (const auto& path : named_runs()) {
        EXPECT_NE(readme.find("`" + path.filename().string() + "`"), std::string::npos) << path;
    }
}

}  // namespace
}  // namespace argosy::config
