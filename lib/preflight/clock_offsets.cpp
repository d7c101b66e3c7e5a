#include "preflight/clock_offsets.h"

#include <chrono>
#include <limits>

#include "base/error.h"
#include "base/patience.h"

namespace argosy::preflight {
namespace {

constexpr int kRounds = 4;

bool done_within(mpi::Request request, double seconds) {
    Patience patience(seconds);
    while (!mpi::test_all({&request, 1})) {
        if (!patience.pause()) return false;
    }
    return true;
}

/// One exchange: a question to or from the peer, and its clock in return. Static, since a request that is
/// given up may still write there.
struct Exchange {
    char question = '?';
    double answer = 0;
};

double offset_of(int rank, const mpi::Comm& comm, double timeout_seconds, Clock clock) {
    static Exchange exchange;
    double fastest = std::numeric_limits<double>::infinity(), offset = 0;
    for (int round = 0; round < kRounds; ++round) {
        const double start = clock();
        const mpi::Request answer = comm.receive(&exchange.answer, sizeof(double), ElementType::UInt8, rank);
        if (!done_within(comm.send(&exchange.question, 1, ElementType::UInt8, rank, /*synchronous=*/false),
                         timeout_seconds) ||
            !done_within(answer, timeout_seconds)) {
            throw TimeoutError("rank {} did not tell its time within {} s: dead, stuck or much slower", rank,
                               timeout_seconds);
        }
        const double end = clock();
        if (end - start < fastest) {
            fastest = end - start;
            offset = exchange.answer - (start + end) / 2;
        }
    }
    return offset;
}

/// Its turn may come after all others'.
void answer_rank_0(const mpi::Comm& comm, double timeout_seconds, Clock clock) {
    static Exchange exchange;
    for (int round = 0; round < kRounds; ++round) {
        const bool asked =
            done_within(comm.receive(&exchange.question, 1, ElementType::UInt8, 0), 2 * timeout_seconds);
        exchange.answer = clock();
        if (!asked || !done_within(comm.send(&exchange.answer, sizeof(double), ElementType::UInt8, 0,
                                             /*synchronous=*/false),
                                   timeout_seconds)) {
            throw TimeoutError("rank 0 did not ask for the time within {} s", 2 * timeout_seconds);
        }
    }
}

}  // namespace

double time_of_day() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<double> clock_offsets(const mpi::Comm& world, double timeout_seconds, Clock clock) {
    std::vector<double> offsets(world.size(), 0.0);
    if (world.rank() != 0) answer_rank_0(world, timeout_seconds, clock);
    for (int rank = 1; world.rank() == 0 && rank < world.size(); ++rank) {
        offsets[rank] = offset_of(rank, world, timeout_seconds, clock);
    }
    if (!done_within(world.broadcast(offsets.data(), offsets.size() * sizeof(double), ElementType::UInt8, 0),
                     2 * timeout_seconds)) {
        throw TimeoutError("rank 0 did not tell the clocks' differences within {} s", 2 * timeout_seconds);
    }
    return offsets;
}

}  // namespace argosy::preflight
