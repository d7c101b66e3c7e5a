#include "config/print.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "config/config_file.h"
#include "config/parse.h"
#include "config/sample_values.h"

namespace argosy::config {
namespace {

JobConfig parsed_again(const JobConfig& config) {
    const ConfigFile file(print_toml(config));
    return parse_command_line({"--config", file.path()}).config;
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t times = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
    return times;
}

TEST(PrintToml, ReadsBackAsTheSameDefaults) { EXPECT_EQ(parsed_again(JobConfig{}), JobConfig{}); }

TEST(PrintToml, ReadsBackAsTheSameValuesOfEveryKey) {
    const JobConfig config = sample_config();
    EXPECT_EQ(parsed_again(config), config);
}

TEST(PrintToml, KeepsEveryBitOfANumber) {
    for (const double number :
         {1.0, 1e-8, 1.0 / 3, 5e-324, 1e22, 123456789012345680.0, 1.7976931348623157e308}) {
        JobConfig config;
        config.optimizer.lr = number;
        EXPECT_EQ(parsed_again(config).optimizer.lr, number);
    }
    JobConfig config;
    config.training.max_norm = std::numeric_limits<double>::infinity();
    config.training.steps = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(parsed_again(config), config);
}

TEST(PrintToml, ShowsUnsetKeysAsComments) {
    const std::string text = print_toml({});
    EXPECT_NE(text.find("\n# total_steps is unset: the run's steps\n"), std::string::npos) << text;
    EXPECT_NE(text.find("[model]\n# name is unset: llama3\n# flavor is unset: debugmodel\n"),
              std::string::npos);
}

TEST(Help, ShowsEveryKeyWithChoicesDefaultAndMeaning) {
    const std::string help = help_text();
    for (const Section& section : schema()) {
        EXPECT_EQ(count(help, "\n[" + section.name + "] "), 1U);
        for (const Field& field : section.fields) {
            const auto at = help.find("\n  --" + field.key + " ");
            ASSERT_NE(at, std::string::npos) << field.key;
            const std::string line = help.substr(at + 1, help.find('\n', at + 1) - at - 1);
            const std::string entry = help.substr(at + 1, help.find("\n  --", at + 1) - at);
            for (const std::string& choice : field.limits.choices)
                EXPECT_GT(count(entry, choice), 0U) << entry;
            const Value value = field.get(JobConfig{});
            EXPECT_TRUE(line.ends_with("  " + (is_set(value) ? toml_text(value) : field.when_unset))) << line;
            EXPECT_NE(entry.find("\n      " + field.meaning + "\n"), std::string::npos) << entry;
        }
    }
    for (const char* option : {"--config", "--help", "--version", "--print-config"}) {
        EXPECT_EQ(count(help, std::string("\n  ") + option + " "), 1U) << option;
    }
}

TEST(Help, FitsIn110Columns) {
    std::istringstream lines(help_text());
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
}

}  // namespace
}  // namespace argosy::config
