// The command line of `eval`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "eval/generate.h"
#include "eval/score.h"
#include "eval/scoring_model.h"
#include "eval/task_file.h"

namespace argosy {

struct Options {
    std::string model, assets, dtype = "fp32", device = "auto", tokenizer;
    std::vector<std::string> tasks;
    std::filesystem::path output;
    bool log_samples = false;
    std::vector<std::string> accepted_keys;
    eval::TaskOptions task;
    int64_t max_length = 0;
    eval::ScoreOptions score;
    std::optional<std::string> prompt;  // of --generate
    std::optional<int64_t> max_new_tokens;
    eval::GenerateOptions generate;
    int num_threads = 0;
    eval::Degrees degrees;
};

/// Describes the program and adds all its options, which write to `options`.
void add_options(CLI::App& app, Options& options);

}  // namespace argosy
