// Shared by the executables: parsing a command line, and printing results.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/program.h"

namespace argosy {

/// Adds --version and parses the command line. Returns false after --help or --version: the program has
/// nothing left to do then. Only a process with `prints_help` prints the text of --help and --version; a
/// parallel program sets it on rank 0. Throws UserError.
inline bool parse_options(CLI::App& app, int argc, char** argv, bool prints_help = true) {
    app.set_version_flag("--version", version());
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
inline void print_result(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        throw RunError("cannot write to stdout");
}

}  // namespace argosy
