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
#include "base/program.h"
#include "base/text.h"

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

/// Refuses numbers below 0. CLI::NonNegativeNumber would name the maximum of all doubles in its message.
inline CLI::Validator not_negative() {
    return {[](std::string& word) {
                return std::strtod(word.c_str(), nullptr) < 0 ? word + " is less than 0" : std::string();
            },
            ">= 0"};
}

/// Adds the names of the app's visible options, and of the subcommand in use.
inline void add_option_names(const CLI::App& app, std::vector<std::string>& names) {
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_group().empty()) continue;
        names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    }
    for (const CLI::App* command : app.get_subcommands()) add_option_names(*command, names);
}

/// Returns the message on an option that the program does not have.
inline std::string unknown_option(const CLI::App& app, const std::string& name) {
    std::vector<std::string> names;
    add_option_names(app, names);
    const std::string meant = nearest(name.substr(name.find_first_not_of('-')), names);
    return fmt::format("unknown option {}; {}", name,
                       meant.empty() ? "--help lists all options" : "did you mean --" + meant + "?");
}

/// Throws UserError for all options that the program does not have, else for the first word that is neither
/// an option nor a value. A program that takes further words takes them as "--section.key value".
inline void refuse_unknown_words(const CLI::App& app) {
    const std::vector<std::string> words = app.remaining(/*recurse=*/true);
    Mistakes mistakes;
    for (const std::string& word : words) {
        const std::string name = word.substr(0, word.find('='));
        const bool is_option = name.starts_with("-") && name.find_first_not_of('-') != std::string::npos;
        const bool is_passed_on =
            app.get_allow_extras() && (!name.starts_with("--") || name.find('.') != std::string::npos);
        if (is_option && !is_passed_on) mistakes.add(unknown_option(app, name));
    }
    mistakes.throw_any();
    if (words.empty() || app.get_allow_extras()) return;
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands(nullptr)) commands.push_back(command->get_name());
    if (commands.empty() || !app.get_subcommands().empty()) throw UserError("unexpected '{}'", words.front());
    const std::string meant = nearest(words.front(), commands);
    throw UserError("unknown subcommand {}; {}", words.front(),
                    meant.empty() ? fmt::format("the subcommands are {}", fmt::join(commands, ", "))
                                  : "did you mean " + meant + "?");
}

/// Throws UserError for an option that was given more often than it takes values.
inline void refuse_repeated_options(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
        const auto count = static_cast<int>(option->count());
        if (count <= option->get_items_expected_max()) continue;
        const bool is_long = !option->get_lnames().empty();
        throw UserError("{}{} is given {} times; give it once", is_long ? "--" : "-",
                        is_long ? option->get_lnames().front() : option->get_snames().front(), count);
    }
    for (const CLI::App* command : app.get_subcommands()) refuse_repeated_options(*command);
}

/// The options of the app and of its subcommands. The values of an option are those of its CLI::IsMember.
inline std::vector<CompletedWords> completed_words(const CLI::App& app) {
    std::vector<CompletedWords> words(1);
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_group().empty() || option->get_positional()) continue;
        CompletedOption& one = words.front().options.emplace_back();
        for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
        for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
        const std::string type = option->get_type_name();
        const size_t begin = type.find('{'), end = type.find('}');
        if (begin != std::string::npos && end != std::string::npos)
            one.values = CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
    }
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
        words.push_back(completed_words(*command).front());
        words.back().command = command->get_name();
    }
    return words;
}

/// Adds --version and --bash-completion, and parses the command line. Returns false after either or --help:
/// the program has nothing left to do then. Only a process with `prints_help` prints their text; a parallel
/// program sets it on rank 0. `passed_on`: the options that the app passes on. Throws UserError.
inline bool parse_options(CLI::App& app, int argc, char** argv, bool prints_help = true,
                          const std::vector<CompletedOption>& passed_on = {}) {
    app.set_version_flag("--version", app.get_name() + " " + version(), "print version and commit, and stop");
    constexpr const char* kCompletion = "--bash-completion";
    app.add_flag(kCompletion)
        ->description("print a script that completes options in bash, and stop: put\nsource <(" +
                      app.get_name() + " --bash-completion) into ~/.bashrc");
    refuse_nan(app);
    if (argc == 2 && std::string(argv[1]) == kCompletion) {
        std::vector<CompletedWords> words = completed_words(app);
        auto& own = words.front().options;
        own.insert(own.end(), passed_on.begin(), passed_on.end());
        if (prints_help) std::fputs(bash_completion(app.get_name(), words).c_str(), stdout);
        return false;
    }
    try {
        app.parse(argc, argv);
        refuse_unknown_words(app);
        return true;
    } catch (const CLI::ParseError& error) {  // --help and --version throw too
        // CLI11 reports a missing option before an unknown one, which may be a misspelling of it.
        using enum CLI::ExitCodes;
        const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
        if (code == RequiredError || code == ExtrasError) refuse_unknown_words(app);
        if (code == ArgumentMismatch) refuse_repeated_options(app);
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

/// Adds --assets, the folder of interop::OpenOptions::assets.
inline void add_assets(CLI::App& app, std::string& folder) {
    app.add_option("--assets", folder,
                   "Hugging Face folder with config.json and tokenizer of a model that has none, as\n"
                   "checkpoints of TorchTitan; without it a preset that fits")
        ->option_text("DIR");
}

}  // namespace argosy
