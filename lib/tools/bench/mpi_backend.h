// Collectives over MPI on host memory, with MPI's non-blocking calls, as in training (lib/platform/comm): a
// call returns at once, and wait() polls its request until a timeout. The host's clock times the iterations;
// an iteration begins when the previous one has ended on this rank.
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
    mpi::Comm group_;
    double timeout_seconds_;
    int rank_, size_;
    std::vector<mpi::Request> requests_;
    std::vector<std::byte> outgoing_;  // a copy of data that is sent in place
    std::vector<double> ends_;         // of iterations, in seconds; the first is the start of the clock
};

}  // namespace argosy::bench
