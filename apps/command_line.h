// Shared by the executables: parsing a command line, and printing results.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/output.h"
#include "base/program.h"

namespace argosy {

/// Makes every option with a floating-point value refuse NaN: a comparison with NaN is false, so a limit of
/// NaN would never be exceeded.
inline void refuse_nan(CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
        if (!option->get_type_name().starts_with("FLOAT")) continue;
        option->check([](const std::string& word) {
            return std::isnan(std::strtod(word.c_str(), nullptr)) ? word + " is not a number" : std::string();
        });
    }
    for (CLI::App* command : app.get_subcommands(nullptr)) refuse_nan(*command);
}

/// Refuses integers below 1. CLI::PositiveNumber would print the range of all doubles, with 300 digits.
inline CLI::Validator at_least_one() {
    return {[](std::string& word) {
                int64_t number = 0;
                const char* const end = word.data() + word.size();
                const auto [rest, error] = std::from_chars(word.data(), end, number);
                const bool too_small = error == std::errc() && rest == end && number < 1;
                return too_small ? word + " is less than 1" : std::string();
            },
            "INT >= 1"};
}

/// Adds --version and parses the command line. Returns false after --help or --version: the program has
/// nothing left to do then. Only a process with `prints_help` prints the text of --help and --version; a
/// parallel program sets it on rank 0. Throws UserError.
inline bool parse_options(CLI::App& app, int argc, char** argv, bool prints_help = true) {
    app.set_version_flag("--version", version());
    refuse_nan(app);
    try {
        app.parse(argc, argv);
        return true;
    } catch (const CLI::ParseError& error) {  // --help and --version throw too
        if (error.get_exit_code() != 0) throw UserError("{}", error.what());
        if (prints_help) app.exit(error);
        return false;
    }
}

/// Prints to stdout. Throws RunError if the text cannot be written.
inline void print_result(const std::string& text) { print_text(text, stdout); }

/// Adds --accept-config-key, which takes the names of model::AcceptedKeys one by one.
inline void add_accepted_keys(CLI::App& app, std::vector<std::string>& names) {
    app.add_option("--accept-config-key", names,
                   "accept a key of a Hugging Face folder's config.json that this program does not\n"
                   "know and that does not change the model; may be given several times")
        ->allow_extra_args(false)
        ->option_text("KEY");
}

}  // namespace argosy
