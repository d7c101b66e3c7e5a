#include "config/parse.h"

#include <gtest/gtest.h>

#include "config/config_file.h"

namespace argosy::config {
namespace {

using Layers = std::vector<int64_t>;

TEST(Parse, NoSettingsGiveTheDefaults) {
    const CommandLine line = parse_command_line({});
    EXPECT_EQ(line.command, Command::Run);
    EXPECT_EQ(line.config, JobConfig{});
}

TEST(Parse, CommandLineOverridesTheFileInAnyOrder) {
    const ConfigFile file("[training]\nsteps = 20\nseq_len = 64\n");
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"--config", file.path(), "--training.steps", "30"},
          std::vector<std::string>{"--training.steps=30", "--config=" + file.path()}}) {
        const JobConfig config = parse_command_line(words).config;
        EXPECT_EQ(config.training.steps, 30);
        EXPECT_EQ(config.training.seq_len, 64);
        EXPECT_EQ(config.training.local_batch_size, 8);
    }
}

TEST(Parse, LaterOfTwoEqualOptionsCounts) {
    const JobConfig config = parse_command_line({"--training.steps", "30", "--training.steps=40"}).config;
    EXPECT_EQ(config.training.steps, 40);
}

TEST(Parse, ValuesMayStartWithAMinusOrHoldAnEqualsSign) {
    const JobConfig config = parse_command_line({"--training.global_batch_size", "-1",
                                                 "--job.description=a=b", "--job.dump_folder", "-x"})
                                 .config;
    EXPECT_EQ(config.training.global_batch_size, -1);
    EXPECT_EQ(config.job.description, "a=b");
    EXPECT_EQ(config.job.dump_folder, "-x");
    EXPECT_EQ(parse_command_line({"--job.description=--x"}).config.job.description, "--x");
    EXPECT_EQ(parse_command_line({"--job.description="}).config.job.description, "");
    EXPECT_EQ(parse_command_line({"--job.description", ""}).config.job.description, "");
}

TEST(Parse, ListsAreSeparatedByCommasOrWrittenAsInToml) {
    const std::string key = "--parallelism.pipeline_parallel_layers_per_stage";
    const std::vector<std::string> degree = {"--parallelism.pipeline_parallel_degree", "3"};
    for (const char* text : {"4,4,3", "[4, 4, 3]", "4, 4 ,3"}) {
        const JobConfig config = parse_command_line({degree[0], degree[1], key, text}).config;
        EXPECT_EQ(config.parallelism.pipeline_parallel_layers_per_stage, (Layers{4, 4, 3})) << text;
    }
    for (const char* text : {"", "[]"}) {
        const JobConfig config = parse_command_line({degree[0], degree[1], key, text}).config;
        EXPECT_TRUE(config.parallelism.pipeline_parallel_layers_per_stage.empty()) << text;
    }
}

TEST(Parse, ListsOfChoicesToo) {
    using Parts = std::vector<SavedPart>;
    const std::string key = "--checkpoint.exclude_from_loading";
    for (const char* text : {"optimizer,train_state", "[\"optimizer\", \"train_state\"]"}) {
        const JobConfig config = parse_command_line({key, text}).config;
        EXPECT_EQ(config.checkpoint.exclude_from_loading,
                  (Parts{SavedPart::Optimizer, SavedPart::TrainState}));
    }
    EXPECT_TRUE(parse_command_line({key, "[]"}).config.checkpoint.exclude_from_loading.empty());
    const ConfigFile empty("[checkpoint]\nexclude_from_loading = []\n");
    EXPECT_TRUE(
        parse_command_line({"--config", empty.path()}).config.checkpoint.exclude_from_loading.empty());
}

TEST(Parse, AnIntegerIsANumberToo) {
    const ConfigFile file("[optimizer]\nlr = 1\n");
    EXPECT_EQ(parse_command_line({"--config", file.path()}).config.optimizer.lr, 1.0);
    EXPECT_EQ(parse_command_line({"--optimizer.lr", "1"}).config.optimizer.lr, 1.0);
    EXPECT_EQ(parse_command_line({"--optimizer.lr", "3e-4"}).config.optimizer.lr, 3e-4);
}

TEST(Parse, APresetIsSetOnlyIfItWasNamed) {
    const ConfigFile file("[model]\nflavor = \"debugmodel\"\n");
    const JobConfig config = parse_command_line({"--config", file.path()}).config;
    EXPECT_TRUE(config.model.flavor.has_value());  // although it is the default
    EXPECT_FALSE(config.model.name.has_value());
}

TEST(Parse, RecognisesCommands) {
    EXPECT_EQ(parse_command_line({"--version"}).command, Command::Version);
    EXPECT_EQ(parse_command_line({"--help"}).command, Command::Help);
    EXPECT_EQ(parse_command_line({"-h"}).command, Command::Help);
    const CommandLine line = parse_command_line({"--print-config", "--training.steps", "30"});
    EXPECT_EQ(line.command, Command::PrintConfig);
    EXPECT_EQ(line.config.training.steps, 30);
}

TEST(Parse, VersionReadsNoFile) {
    EXPECT_EQ(parse_command_line({"--version", "--config", "absent.toml"}).command, Command::Version);
}

TEST(Parse, ASwitchIsABooleanOrAuto) {
    const auto value_in = [](const std::string& toml) {
        const ConfigFile file("[parallelism]\nenable_async_tensor_parallel = " + toml + "\n");
        return parse_command_line({"--config", file.path()}).config.parallelism.enable_async_tensor_parallel;
    };
    EXPECT_EQ(value_in("true"), Switch::On);
    EXPECT_EQ(value_in("false"), Switch::Off);
    EXPECT_EQ(value_in("\"auto\""), Switch::Auto);
    const std::string key = "--parallelism.enable_async_tensor_parallel";
    const auto value_of = [](const std::vector<std::string>& words) {
        return parse_command_line(words).config.parallelism.enable_async_tensor_parallel;
    };
    EXPECT_EQ(value_of({}), Switch::Off);
    EXPECT_EQ(value_of({key}), Switch::On);
    EXPECT_EQ(value_of({key, "false"}), Switch::Off);
    EXPECT_EQ(value_of({key + "=auto"}), Switch::Auto);
}

TEST(Choices, HaveTheirNames) {
    EXPECT_EQ(name_of(OptimizerName::AdamW), "AdamW");
    EXPECT_EQ(name_of(DecayType::Linear), "linear");
    EXPECT_EQ(name_of(DecayType::Cosine), "cosine");
    EXPECT_EQ(name_of(DecayType::Sqrt), "sqrt");
    EXPECT_EQ(name_of(Precision::BFloat16), "bfloat16");
    EXPECT_EQ(name_of(Precision::Float32), "float32");
    EXPECT_EQ(name_of(Precision::Float64), "float64");
    EXPECT_EQ(name_of(ReshardAfterForward::Default), "default");
    EXPECT_EQ(name_of(ReshardAfterForward::Always), "always");
    EXPECT_EQ(name_of(ReshardAfterForward::Never), "never");
    EXPECT_EQ(name_of(PipelineSchedule::OneForwardOneBackward), "1F1B");
    EXPECT_EQ(name_of(PipelineSchedule::GPipe), "GPipe");
    EXPECT_EQ(name_of(RecomputeMode::None), "none");
    EXPECT_EQ(name_of(RecomputeMode::Selective), "selective");
    EXPECT_EQ(name_of(RecomputeMode::Full), "full");
}

TEST(Parse, HelpIsPrintedDespiteMistakes) {
    EXPECT_EQ(parse_command_line({"--config", "absent.toml", "--nonsense", "--help"}).command, Command::Help);
}

}  // namespace
}  // namespace argosy::config
