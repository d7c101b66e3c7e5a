// Collectives over NCCL on the memory of this rank's GPU, one operation after the other on a stream of their
// own.
//
// What is timed. As nccl-tests does, iterations are put on the stream one behind the other, the next while
// the one before it still runs, and the whole interval ends when the host has seen the last of them end: so a
// time holds what the GPU takes, and of the launches only what the GPU had to wait for. Of single iterations,
// the ends are those of the GPU's clock. With wait_for_each the host waits for each iteration before it
// launches the next, and all times are the host's: then each holds a launch and the sight of its end too.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/backend.h"
#include "bench/host_clock.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "mpi/comm.h"
#include "nccl/communicator.h"
#include "nccl/connection_log.h"

namespace argosy::bench {

class NcclBackend : public Backend {
  public:
    struct Setup {
        int device;
        double timeout_seconds;
        bool wait_for_each = false;
        nccl::ConnectionLog* log = nullptr;
    };

    /// COLLECTIVE over `group`, through which the ranks find each other. Throws NoAnswer when one stays away.
    NcclBackend(const mpi::Comm& group, const Setup& setup);

    int rank() const override { return lane_->communicator->rank(); }
    int size() const override { return lane_->communicator->size(); }
    void require(size_t /*elements*/) const override {}
    Memory allocate(size_t bytes) const override;
    void write(std::byte* to, std::span<const std::byte> from) const override;
    void read(std::span<std::byte> to, const std::byte* from) const override;
    bool result_at_start() const override { return false; }
    bool scales_before_average() const override { return true; }

    void all_gather(const Call& call) override;
    void all_reduce(const Call& call) override;
    void all_to_all(const Call& call) override;
    void broadcast(const Call& call) override;
    void gather(const Call& call) override;
    void reduce(const Call& call) override;
    void reduce_scatter(const Call& call) override;
    void scatter(const Call& call) override;
    void send_receive(const Call& call) override;
    void begin_together() override { together_ = true; }
    void end_together() override;

    void wait() override;
    void start_clock() override;
    void end_iteration() override;
    std::vector<double> iteration_seconds() override;

    std::vector<std::string> connections() const override;

  private:
    /// What launches work with. A thread that is given up in one of them holds on to it.
    struct Lane {
        explicit Lane(cuda::Stream made) : stream(std::move(made)) {}
        cuda::Stream stream;
        std::unique_ptr<nccl::Communicator> communicator;
    };
    using Launch = std::function<void(const nccl::Communicator&, const cuda::Stream&)>;

    /// What NCCL may connect anew for.
    struct Kind {
        const char* name;
        size_t count;
        ElementType type;
        Operation operation;
        int root;
        bool operator==(const Kind&) const = default;
    };

    void make_communicator(const mpi::Comm& group);
    void launch(const char* name, const Call& call, Launch operation);
    void launch_batch();
    void launch_now(const std::function<void()>& calls);
    void give_up_after_timeout(std::function<void()> calls);
    void wait_for(const std::function<bool()>& done);
    const std::byte* leaving(const Call& call, size_t bytes);

    Setup setup_;
    std::shared_ptr<Lane> lane_;
    size_t log_begins_;
    Kind last_ = {}, next_ = {};
    bool together_ = false;
    std::vector<Launch> batch_;
    std::vector<cuda::DeviceMemory> outgoing_;  // copies of what is sent in place
    size_t num_outgoing_ = 0;
    std::vector<cuda::Event> ends_;  // of iterations; the first is the start
    size_t num_ends_ = 0, num_ended_ = 0;
    HostClock clock_;
};

}  // namespace argosy::bench
