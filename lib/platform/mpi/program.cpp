#include "mpi/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/program.h"
#include "mpi/comm.h"
#include "mpi/start_up.h"

namespace argosy::mpi {
namespace {

constexpr double kSecondsToAgree = 5;
constexpr std::chrono::seconds kTimeForReporter{5};

/// An error of one rank that is already printed.
class PrintedError : public Error {
  public:
    explicit PrintedError(const Error& error) : Error(error.code(), Reach::OneRank, error.what()) {}
};

/// Returns true if every rank calls this function within kSecondsToAgree. If so, all ranks have the same
/// error.
bool all_arrive(const Comm& errors) {
    Request request = errors.barrier();
    for (PollTimer timer(kSecondsToAgree); timer.pause();) {
        if (test_all({&request, 1})) return true;
    }
    return false;
}

void print_error(const char* name, const Comm& errors, bool common, const char* message) {
    if (common || errors.size() == 1) {
        std::fprintf(stderr, "%s: error: %s\n", name, message);
    } else {
        std::fprintf(stderr, "%s: error on rank %d of %d: %s\n", name, errors.rank(), errors.size(), message);
    }
    std::fflush(stderr);
}

[[noreturn]] void print_and_throw(const char* name, const Comm& ranks, const Error& error) {
    print_error(name, ranks, /*common=*/false, error.what());
    throw PrintedError(error);
}

/// Reports `error` and returns the exit code. An error that not all ranks have ends the job at once with
/// MPI_Abort, because other ranks may wait for this rank in a collective. A rank whose error another rank
/// reports first waits kTimeForReporter for that rank to end the job. A rank that is alone leaves without
/// MPI_Abort, which would print some lines after the error.
ExitCode leave(const char* name, const Comm& errors, const Error& error) {
    if (error.reach() == Reach::ReportedByAnother) std::this_thread::sleep_for(kTimeForReporter);
    const bool everyone = error.reach() == Reach::AllRanks && all_arrive(errors);
    const bool is_printed = dynamic_cast<const PrintedError*>(&error) != nullptr;
    if (!is_printed && (!everyone || errors.rank() == 0)) print_error(name, errors, everyone, error.what());
    if (!everyone && errors.size() > 1) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(error.code()));
    return error.code();
}

void require_expected_size(const Environment& environment, int size) {
    if (environment.expected_ranks == 0 || environment.expected_ranks == size) return;
    throw UserError(
        "{} ranks were requested, but MPI_COMM_WORLD has {}: the launcher does not support this Open MPI's "
        "start-up protocol. Use `srun --mpi=pmix` (see `srun --mpi=list`), or the mpirun of this Open MPI",
        environment.expected_ranks, size);
}

/// Throws RunError if the folder in which Open MPI keeps its files has no room for them. Open MPI itself
/// would print many lines without the folder's name, or hang. Open MPI makes its own folder if that is
/// absent. A container may lack that of the launcher, and the launcher may then do without.
void require_space_for_mpi(const Environment& environment) {
    // Open MPI 4.1 makes two shared segments of 4 MiB and some small files. A launcher has made its own.
    const bool is_of_launcher = environment.mpi_folder.is_of_launcher;
    const off_t needed_bytes = is_of_launcher ? 64 << 10 : 9 << 20;
    std::filesystem::path folder = environment.mpi_folder.path;
    std::error_code ignored;
    if (is_of_launcher && !std::filesystem::exists(folder, ignored)) return;
    while (folder.has_relative_path() && !std::filesystem::exists(folder, ignored))
        folder = folder.parent_path();
    std::string name = folder / "argosy-XXXXXX";
    const int file = mkostemp(name.data(), O_CLOEXEC);
    const int reason = file < 0 ? errno : posix_fallocate(file, 0, needed_bytes);
    if (file >= 0) {
        close(file);
        unlink(name.c_str());
    }
    const bool is_full = reason == ENOSPC || reason == EDQUOT;
    if (!is_full && (reason != EROFS || is_of_launcher)) return;  // MPI may need less than this test
    throw RunError("the temporary folder {} has no room for the {} KiB that MPI needs: {}; {}",
                   environment.mpi_folder.path, needed_bytes >> 10, std::generic_category().message(reason),
                   is_of_launcher
                       ? "make room there (PMIX_SERVER_TMPDIR, which the launcher has chosen)"
                       : "make room there, or set TMPDIR to a folder on another file system of this machine");
}

void start(int* argc, char*** argv) {
    const BoundedCall call("MPI_Init");
    int provided = 0;
    check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    // Open MPI reports the failure of a non-blocking collective here, whatever its group.
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

}  // namespace

void print_and_rethrow(const char* name, const Comm& ranks) {
    try {
        throw;
    } catch (const Error& error) {
        if (error.reach() != Reach::OneRank) throw;
        print_and_throw(name, ranks, error);
    } catch (const std::exception& error) {
        print_and_throw(name, ranks, as_error(error));
    }
}

int run_program(const char* name, int* argc, char*** argv,
                const std::function<ExitCode(const Comm& world, const Environment&)>& body) {
    survive_file_size_limit();
    const Environment environment = Environment::read();
    try {
        require_address_space();
        require_space_for_mpi(environment);
    } catch (
        const Error& error) {  // the ranks of a node share its limits and folder, so the first one reports
        if (environment.local_rank != 0) std::this_thread::sleep_for(kTimeForReporter);
        std::fprintf(stderr, "%s: error on %s: %s\n", name, environment.node_name().c_str(), error.what());
        return static_cast<int>(error.code());
    }
    start(argc, argv);
    const Comm world = Comm::world(), errors = Comm::world();
    ExitCode code = ExitCode::Done;
    try {
        start_log(environment.log_level, world.rank(), world.size());
        require_expected_size(environment, world.size());
        code = body(world, environment);
    } catch (const Error& error) {
        code = leave(name, errors, error);
    } catch (const std::exception& error) {
        code = leave(name, errors, as_error(error));
    }
    const BoundedCall call("MPI_Finalize");
    MPI_Finalize();
    return static_cast<int>(code);
}

}  // namespace argosy::mpi
