#include "config/print.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "base/error.h"
#include "config/config_file.h"
#include "config/parse.h"
#include "config/sample_values.h"
#include "config/schema.h"

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
    const std::string help = help_text("all");
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
    std::istringstream lines(help_text() + help_text("all"));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
}

TEST(Help, BeginsWithTheUsageAndThreeExamplesAndNamesAllKeys) {
    const std::string help = help_text();
    EXPECT_TRUE(help.starts_with("usage: pretrain [--config F.toml] [--section.key VALUE ...]"));
    const size_t examples = help.find("\nExamples:\n"), options = help.find("\nOptions:\n");
    ASSERT_LT(examples, options);
    EXPECT_EQ(count(help.substr(examples, options - examples), " pretrain "), 3U);
    const std::string groups = help.substr(help.find("\nGroups of keys:\n"));
    for (const Section& section : schema()) {
        EXPECT_EQ(count(groups, "\n  " + section.name + " "), 1U) << section.name;
        for (const Field& field : section.fields) EXPECT_GT(count(groups, " " + field.name), 0U) << field.key;
    }
    EXPECT_LT(count(help, "\n"), 110U);
}

TEST(Help, OfAGroupHasItsKeysAlone) {
    const auto help = [](const std::vector<std::string>& words) { return answer(parse_command_line(words)); };
    const std::string parallelism = help({"--help", "parallelism"});
    EXPECT_TRUE(parallelism.starts_with("[parallelism] "));
    EXPECT_EQ(count(parallelism, "\n["), 0U);
    EXPECT_EQ(count(parallelism, "\n  --"), find_section("parallelism")->fields.size());
    EXPECT_EQ(help({"--help=parallelism", "--nonsense"}), parallelism);
    EXPECT_EQ(count(help({"-h", "quantize"}), "[quantize.linear."), 2U);
    const std::string key = help({"--help", "training.seq_len"});
    EXPECT_TRUE(key.starts_with("[training] ") && count(key, "\n  --") == 1) << key;
    for (const auto& [topic, meant] : {std::pair("paralelism", "did you mean parallelism?"),
                                       std::pair("training.seqlen", "did you mean training.seq_len?"),
                                       std::pair("zzz", "the groups are job, model, ")}) {
        try {
            help({"--help", topic});
            ADD_FAILURE() << topic;
        } catch (const UserError& error) {
            EXPECT_NE(std::string(error.what()).find(meant), std::string::npos) << error.what();
        }
    }
}

TEST(Completion, HasEveryOptionWithItsChoices) {
    const std::string script = answer(parse_command_line({"--bash-completion"}));
    for (const std::string& key : keys())
        EXPECT_GT(count(script, " --" + key + " ") + count(script, " --" + key + "'"), 0U) << key;
    for (const char* option : {"--config", "--plan", "--gpus", "--from-litgpt", "--output", "--help"})
        EXPECT_GT(count(script, std::string(option) + " "), 0U) << option;
    EXPECT_EQ(count(script, ":--lr_scheduler.decay_type) COMPREPLY=($(compgen -W 'linear cosine sqrt' "), 1U);
    EXPECT_EQ(count(script, ":--compile.enable) COMPREPLY=($(compgen -W 'true false' "), 1U);
}

}  // namespace
}  // namespace argosy::config
