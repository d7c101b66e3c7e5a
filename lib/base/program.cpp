#include "base/program.h"

#include <csignal>
#include <cstdio>
#include <exception>

namespace argosy {

int run_program(const char* name, const std::function<ExitCode()>& body) {
    const auto fail = [name](ExitCode code, const char* text) {
        fmt::print(stderr, "{}: error: {}\n", name, text);
        return static_cast<int>(code);
    };
    survive_file_size_limit();
    try {
        return static_cast<int>(body());
    } catch (const Error& error) {
        return fail(error.code(), error.what());
    } catch (const std::exception& error) {
        return fail(ExitCode::Failed, error.what());
    }
}

void survive_file_size_limit() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace argosy
