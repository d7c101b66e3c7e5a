#include "preflight/clock_offsets.h"

#include <chrono>
#include <limits>

namespace argosy::preflight {
namespace {

constexpr int kRounds = 4;

constexpr const char* kPlace = "comparing the clocks";

/// The buffers of one exchange: a question from rank 0, and the other rank's clock in return. The variables
/// of this type are static, because a request that was abandoned after a timeout may still write to them.
struct Exchange {
    char question = '?';
    double answer = 0;
};

double offset_of(int rank, const mpi::Comm& comm, const bench::ControlChannel& control, Clock clock) {
    static Exchange exchange;
    double fastest = std::numeric_limits<double>::infinity(), offset = 0;
    for (int round = 0; round < kRounds; ++round) {
        const double start = clock();
        const mpi::Request answer = comm.receive(&exchange.answer, sizeof(double), ElementType::UInt8, rank);
        control.wait(comm.send(&exchange.question, 1, ElementType::UInt8, rank, /*synchronous=*/false),
                     kPlace);
        control.wait(answer, kPlace);
        const double end = clock();
        if (end - start < fastest) {
            fastest = end - start;
            offset = exchange.answer - (start + end) / 2;
        }
    }
    return offset;
}

/// Waits for rank 0's questions, which may come only after all other ranks have answered theirs.
void answer_rank_0(const mpi::Comm& comm, const bench::ControlChannel& control, Clock clock) {
    static Exchange exchange;
    for (int round = 0; round < kRounds; ++round) {
        control.wait(comm.receive(&exchange.question, 1, ElementType::UInt8, 0), kPlace);
        exchange.answer = clock();
        control.wait(
            comm.send(&exchange.answer, sizeof(double), ElementType::UInt8, 0, /*synchronous=*/false),
            kPlace);
    }
}

}  // namespace

double time_of_day() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<double> clock_offsets(const mpi::Comm& world, const bench::ControlChannel& control, Clock clock) {
    std::vector<double> offsets(world.size(), 0.0);
    if (world.rank() != 0) answer_rank_0(world, control, clock);
    for (int rank = 1; world.rank() == 0 && rank < world.size(); ++rank) {
        offsets[rank] = offset_of(rank, world, control, clock);
    }
    control.wait(world.broadcast(offsets.data(), offsets.size() * sizeof(double), ElementType::UInt8, 0),
                 kPlace);
    return offsets;
}

}  // namespace argosy::preflight
