// Collectives over NCCL on the memory of this rank's GPU, one operation after the other on its own stream.
//
// Times are taken as in nccl-tests. The host queues all iterations on the stream without waiting, and the
// interval ends when the host sees the last iteration end. The time contains the GPU's work; it contains
// launch overhead only where the GPU waited for a launch. CUDA events mark the ends of single iterations.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/backend.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "mpi/comm.h"
#include "nccl/comm.h"
#include "nccl/connection_log.h"

namespace argosy::bench {

class NcclBackend : public Backend {
  public:
    struct Setup {
        int device;
        double timeout_seconds;
        nccl::ConnectionLog* log = nullptr;
    };

    /// COLLECTIVE over `group`, which broadcasts NCCL's id. Throws WaitTimeout after a timeout.
    NcclBackend(const mpi::Comm& group, const Setup& setup);

    int rank() const override { return handles_->communicator->rank(); }
    int size() const override { return handles_->communicator->size(); }
    Memory allocate(size_t bytes) const override;
    void write(std::byte* to, std::span<const std::byte> from) const override;
    void read(std::span<std::byte> to, const std::byte* from) const override;
    bool result_at_start() const override { return false; }

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

    std::vector<std::string> connections() const override;

  private:
    /// The stream and communicator of all launches. They have shared ownership, because a thread that
    /// run_with_timeout() left behind still uses them.
    struct Handles {
        explicit Handles(cuda::Stream made) : stream(std::move(made)) {}
        cuda::Stream stream;
        std::unique_ptr<nccl::Comm> communicator;
    };
    using Launch = std::function<void(const nccl::Comm&, const cuda::Stream&)>;

    /// A kind of operation. NCCL may make new connections when the kind changes.
    struct Kind {
        const char* name;
        size_t count;
        ElementType type;
        Reduction reduction;
        int root;
        bool operator==(const Kind&) const = default;
    };

    void make_communicator(const mpi::Comm& group);
    void launch(const char* name, const Call& call, const Launch& operation);
    void run_with_timeout(std::function<void()> calls);
    void wait_for(const std::function<bool()>& done);
    const std::byte* send_buffer(const Call& call, size_t bytes);

    Setup setup_;
    std::shared_ptr<Handles> handles_;
    size_t log_begins_;
    Kind last_ = {};
    std::vector<cuda::DeviceMemory> outgoing_;  // copies of data that is sent in place
    size_t num_outgoing_ = 0;
    std::vector<cuda::Event> ends_;  // ends of iterations; the first event is the start of the clock
    size_t num_ends_ = 0, num_ended_ = 0;
};

}  // namespace argosy::bench
