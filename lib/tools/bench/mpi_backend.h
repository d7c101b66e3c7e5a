// Collectives over MPI on host memory. The default is MPI's non-blocking calls, as in training
// (lib/platform/comm): a call returns at once, and wait() polls its request until a timeout. A group with
// Calls::Blocking uses MPI's blocking calls, which no timeout can end. An operation with more elements than
// MPI can count (2^31 - 1 in all chunks together) runs in pieces, which are under way at once. The host's
// clock times the iterations; an iteration begins when the previous one has ended on this rank.
#pragma once

#include <vector>

#include "bench/backend.h"
#include "mpi/comm.h"

namespace argosy::bench {

class MpiBackend : public Backend {
  public:
    MpiBackend(mpi::Comm group, double timeout_seconds);

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    Memory allocate(size_t bytes) const override;
    void write(std::byte* to, std::span<const std::byte> from) const override;
    void read(std::span<std::byte> to, const std::byte* from) const override;
    bool result_at_start() const override { return true; }

    void all_gather(const Call& call) override;
    void all_reduce(const Call& call) override;
    void all_to_all(const Call& call) override;
    void broadcast(const Call& call) override;
    void gather(const Call& call) override;
    void reduce(const Call& call) override;
    void reduce_scatter(const Call& call) override;
    void scatter(const Call& call) override;
    void send_receive(const Call& call) override;

    void wait() override;
    void start_clock() override;
    void end_iteration() override;
    std::vector<double> iteration_seconds() override;

    /// Empty: MPI does not report its connections.
    std::vector<std::string> connections() const override { return {}; }

  private:
    /// Starts `run(first element, number of elements)` for each piece of a chunk. `num_chunks` chunks travel
    /// in one operation.
    template <class Run>
    void in_pieces(const Call& call, int num_chunks, Run run);
    void reduce_scatter_in_pieces(const Call& call);

    /// A piece of a result that arrives at another place. wait() moves it.
    struct Move {
        std::byte* to;
        const std::byte* from;
        size_t bytes;
    };

    mpi::Comm group_;
    double timeout_seconds_;
    int rank_, size_;
    std::vector<mpi::Request> requests_;
    std::vector<std::vector<int>> counts_;  // of reduce_scatters under way, by rank
    std::vector<Move> moves_;
    std::vector<std::vector<std::byte>> outgoing_;  // copies of data that is sent in place
    size_t num_outgoing_ = 0;
    std::vector<double> ends_;  // of iterations, in seconds; the first is the start of the clock
};

}  // namespace argosy::bench
