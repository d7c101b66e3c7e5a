// Shared by the executables: parsing a command line, and printing results.
#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
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

/// Adds the names of the app's visible options, and of the subcommand in use.
inline void add_option_names(const CLI::App& app, std::vector<std::string>& names) {
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_group().empty()) continue;
        names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    }
    for (const CLI::App* command : app.get_subcommands()) add_option_names(*command, names);
}

[[noreturn]] inline void refuse_option(const CLI::App& app, const std::string& name) {
    std::vector<std::string> names;
    add_option_names(app, names);
    const std::string meant = nearest(name.substr(name.find_first_not_of('-')), names);
    throw UserError("unknown option {}; {}", name,
                    meant.empty() ? "--help lists all options" : "did you mean --" + meant + "?");
}

/// Throws UserError for the first option that the program does not have, else for the first word that is
/// neither an option nor a value. A program that takes further words takes them as "--section.key value".
inline void refuse_unknown_words(const CLI::App& app) {
    const std::vector<std::string> words = app.remaining(/*recurse=*/true);
    for (const std::string& word : words) {
        const std::string name = word.substr(0, word.find('='));
        const bool is_option = name.starts_with("-") && name.find_first_not_of('-') != std::string::npos;
        const bool is_passed_on =
            app.get_allow_extras() && (!name.starts_with("--") || name.find('.') != std::string::npos);
        if (is_option && !is_passed_on) refuse_option(app, name);
    }
    if (words.empty() || app.get_allow_extras()) return;
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands(nullptr)) commands.push_back(command->get_name());
    if (commands.empty() || !app.get_subcommands().empty()) throw UserError("unexpected '{}'", words.front());
    const std::string meant = nearest(words.front(), commands);
    throw UserError("unknown subcommand {}; {}", words.front(),
                    meant.empty() ? fmt::format("the subcommands are {}", fmt::join(commands, ", "))
                                  : "did you mean " + meant + "?");
}

/// Adds --version and parses the command line. Returns false after --help or --version: the program has
/// nothing left to do then. Only a process with `prints_help` prints the text of --help and --version; a
/// parallel program sets it on rank 0. Throws UserError.
inline bool parse_options(CLI::App& app, int argc, char** argv, bool prints_help = true) {
    app.set_version_flag("--version", version());
    refuse_nan(app);
    try {
        app.parse(argc, argv);
        refuse_unknown_words(app);
        return true;
    } catch (const CLI::ParseError& error) {  // --help and --version throw too
        // CLI11 reports a missing option before an unknown one, which may be a misspelling of it.
        using enum CLI::ExitCodes;
        const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
        if (code == RequiredError || code == ExtrasError) refuse_unknown_words(app);
        if (code != Success) throw UserError("{}", error.what());
        if (prints_help) app.exit(error);
        return false;
    }
}

/// Adds --accept-config-key, which takes the names of model::AcceptedKeys one by one.
inline void add_accepted_keys(CLI::App& app, std::vector<std::string>& names) {
    app.add_option("--accept-config-key", names,
                   "accept a key of a Hugging Face folder's config.json that this program does not\n"
                   "know and that does not change the model; may be given several times")
        ->allow_extra_args(false)
        ->option_text("KEY");
}

}  // namespace argosy
