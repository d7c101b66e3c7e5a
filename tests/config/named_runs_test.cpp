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

// A run's log prints the description, and a run may have other degrees, ranks and devices than its file.
TEST(NamedRuns, HaveDescriptionsThatAreTrueOnAnyMesh) {
    for (const auto& path : named_runs()) {
        const std::string text = parse_command_line({"--config", path.string()}).config.job.description;
        for (const char* word : {"DP", " TP", " PP", "rank", "GPU", "H100", "H200", "node"})
            EXPECT_EQ(text.find(word), std::string::npos) << path << ": " << text;
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

TEST(NamedRuns, HaveAnExpectedSpeed) {
    const std::string page = content_of(std::filesystem::path(ARGOSY_CONFIGS) / "expected" / "README.md");
    for (const auto& path : named_runs()) {
        if (path.stem() == "debug_cpu") continue;  // for processors
        EXPECT_NE(page.find("`" + path.filename().string() + "`"), std::string::npos) << path;
    }
}

TEST(NamedRuns, PointsOfTheirGridsParse) {
    for (const auto& [points, run] :
         {std::pair{"8b.points", "llama3_8b_1node.toml"}, {"70b.points", "llama3_70b_2d.toml"}}) {
        const std::filesystem::path folder = ARGOSY_CONFIGS;
        std::ifstream lines(folder / "expected" / points);
        int count = 0;
        for (std::string line; std::getline(lines, line); ++count) {
            std::vector<std::string> words = {"--config", folder / run};
            std::istringstream rest(line);
            for (std::string word; rest >> word;) words.push_back(word);
            EXPECT_NO_THROW(parse_command_line(words)) << line;
        }
        EXPECT_EQ(count % 6, 0)
            << "bfloat16, tensorwise and rowwise, each with and without async tensor parallelism";
        EXPECT_GT(count, 0);
    }
}

}  // namespace
}  // namespace argosy::config
