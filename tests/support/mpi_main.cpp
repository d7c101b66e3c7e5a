// main of a suite on ranks: GoogleTest on every rank. Rank 0 prints the whole report; the others print only
// failures. If any rank failed, all exit with an error.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/program.h"
#include "comm/group.h"
#include "comm/values.h"
#include "mpi/program.h"
#include "support/world.h"

namespace argosy::testing {
namespace {

// GoogleTest's tests take no arguments, so this is the one global through which a test reaches its ranks.
comm::Communicator* the_world = nullptr;
comm::Communicator* the_self = nullptr;

class FailurePrinter : public ::testing::EmptyTestEventListener {
  public:
    explicit FailurePrinter(int rank) : rank_(rank) {}

    void OnTestStart(const ::testing::TestInfo& test) override {
        test_ = std::string(test.test_suite_name()) + "." + test.name();
    }

    void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::fprintf(stderr, "rank %d, %s: %s:%d: %s\n", rank_, test_.c_str(),
                     result.file_name() ? result.file_name() : "", result.line_number(), result.message());
    }

  private:
    int rank_;
    std::string test_;
};

void print_failures_only(int rank) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
}

ExitCode run_suite(const mpi::Comm& ranks) {
    const c10::InferenceMode guard;
    // Synchronous sends: a schedule that relies on MPI's buffers for small messages hangs in tests.
    const auto world = comm::make_communicator(mpi::Comm::world(), "world",
                                               {.timeout_seconds = kTimeoutSeconds,
                                                .synchronous_sends = true,
                                                .shared_memory_bytes = kSharedMemoryBytes});
    const auto self =
        comm::make_communicator(mpi::Comm::self(), "self", {.timeout_seconds = kTimeoutSeconds});
    // The result travels on a communicator of its own, which no test's leftover message can reach.
    const auto verdict =
        comm::make_communicator(mpi::Comm::world(), "verdict", {.timeout_seconds = kTimeoutSeconds});
    the_world = world.get();
    the_self = self.get();

    if (ranks.rank() != 0) print_failures_only(ranks.rank());
    const bool any = comm::maximum(*verdict, RUN_ALL_TESTS()) != 0;
    if (any && ranks.rank() == 0) std::fprintf(stderr, "FAILED on at least one of %d ranks\n", ranks.size());
    return any ? ExitCode::Failed : ExitCode::Done;
}

}  // namespace

comm::Communicator& world() { return *the_world; }
comm::Communicator& self() { return *the_self; }

}  // namespace argosy::testing

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return argosy::end_process(argosy::mpi::run_program(
        "test", &argc, &argv, [](const argosy::mpi::Comm& ranks, const argosy::Environment&) {
            return argosy::testing::run_suite(ranks);
        }));
}
