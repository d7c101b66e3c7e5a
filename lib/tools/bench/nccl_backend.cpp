// Collectives over NCCL on the memory of this rank's GPU, one operation after the other on its own stream.
//
// Times are taken as in nccl-tests. The host queues all iterations on the stream without waiting, and the
// interval ends when the host sees the last iteration end. The time contains the GPU's work; it contains
// launch overhead only where the GPU waited for a launch. CUDA events mark the ends of single iterations.
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "bench/backend.h"
#include "bench/control_channel.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "nccl/comm.h"
#include "nccl/connection_log.h"

namespace argosy::bench {
namespace {

cuda::Stream stream_on(int device) {
    cuda::set_device(device);
    return cuda::Stream();
}

class NcclBackend : public Backend {
  public:
    NcclBackend(const mpi::Comm& group, int device, double timeout_seconds, nccl::ConnectionLog* log)
        : device_(device),
          timeout_seconds_(timeout_seconds),
          log_(log),
          handles_(std::make_shared<Handles>(stream_on(device))),
          log_begins_(log ? log->text().size() : 0) {
        make_communicator(group);
        if (log_) log_->restore_environment();
    }

    int rank() const override { return handles_->communicator->rank(); }
    int size() const override { return handles_->communicator->size(); }

    Memory allocate(size_t bytes) const override {
        auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
        cuda::set_to_zero(memory->data(), bytes, handles_->stream);
        handles_->stream.synchronize();
        return {memory->data(), [memory](std::byte*) mutable { memory.reset(); }};
    }
    // write() and read() copy on the stream of the operations, because the device's default stream is not
    // ordered with that stream. No operation is under way during a copy, so synchronize() does not wait for
    // other ranks.
    void write(std::byte* to, std::span<const std::byte> from) const override {
        cuda::copy_to_device(to, from, handles_->stream);
        handles_->stream.synchronize();
    }
    void read(std::span<std::byte> to, const std::byte* from) const override {
        cuda::copy_to_host(to, from, handles_->stream);
        handles_->stream.synchronize();
    }
    bool result_at_start() const override { return false; }

    void all_gather(const Call& call) override {
        launch("all_gather", call, [call](const nccl::Comm& ranks, const cuda::Stream& stream) {
            ranks.all_gather(call.out, call.in, call.count, call.type, stream);
        });
    }
    void all_reduce(const Call& call) override {
        launch("all_reduce", call, [call](const nccl::Comm& ranks, const cuda::Stream& stream) {
            ranks.all_reduce(call.out, call.in, call.count, call.type, call.reduction, stream);
        });
    }
    void all_to_all(const Call& call) override {
        const size_t bytes = call.count * static_cast<size_t>(size()) * size_bytes(call.type);
        const std::byte* const in = send_buffer(call, bytes);
        launch("all_to_all", call, [call, in](const nccl::Comm& ranks, const cuda::Stream& stream) {
            ranks.all_to_all(call.out, in, call.count, call.type, stream);
        });
    }
    void broadcast(const Call& call) override {
        launch("broadcast", call, [call](const nccl::Comm& ranks, const cuda::Stream& stream) {
            ranks.broadcast(call.out, call.in, call.count, call.type, call.root, stream);
        });
    }
    void reduce_scatter(const Call& call) override {
        launch("reduce_scatter", call, [call](const nccl::Comm& ranks, const cuda::Stream& stream) {
            ranks.reduce_scatter(call.out, call.in, call.count, call.type, call.reduction, stream);
        });
    }
    void send_receive(const Call& call) override {
        const std::byte* const in = send_buffer(call, call.count * size_bytes(call.type));
        launch("send_receive", call, [call, in](const nccl::Comm& ranks, const cuda::Stream& stream) {
            nccl::launch_together([&] {
                const int before = (ranks.rank() + ranks.size() - 1) % ranks.size();
                const int next = (ranks.rank() + 1) % ranks.size();
                ranks.send(in, call.count, call.type, next, stream);
                ranks.receive(call.out, call.count, call.type, before, stream);
            });
        });
    }

    /// The timeout applies to each iteration separately.
    void wait() override {
        for (; num_ended_ < num_ends_; ++num_ended_) {
            wait_for([this] { return ends_[num_ended_].done(); });
        }
        wait_for([this] { return handles_->stream.done(); });
        handles_->communicator->require_health();
        num_outgoing_ = 0;
    }
    void start_clock() override {
        num_ends_ = num_ended_ = 0;
        end_iteration();
    }
    void end_iteration() override {
        if (num_ends_ == ends_.size()) ends_.emplace_back();
        ends_[num_ends_++].record(handles_->stream);
        // The copies may be reused: on the stream, the next iteration's copies come after this one's sends.
        num_outgoing_ = 0;
    }
    std::vector<double> iteration_seconds() override {
        wait();
        std::vector<double> seconds;
        for (size_t i = 1; i < num_ends_; ++i) {
            seconds.push_back(cuda::Event::seconds_between(ends_[i - 1], ends_[i]));
        }
        return seconds;
    }

    std::vector<std::string> connections() const override {
        return log_ ? nccl::connections_in(log_->text(), log_begins_) : std::vector<std::string>{};
    }

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

    void make_communicator(const mpi::Comm& group) {
        nccl::UniqueId id = {};
        if (group.rank() == 0) id = nccl::make_unique_id();
        if (!finished_within(group.broadcast(id.data(), id.size(), ElementType::UInt8, 0), timeout_seconds_))
            throw WaitTimeout();
        const auto made = std::make_shared<std::unique_ptr<nccl::Comm>>();
        run_with_timeout([made, id, size = group.size(), rank = group.rank()] {
            *made = std::make_unique<nccl::Comm>(id, size, rank);
        });
        handles_->communicator = std::move(*made);
    }

    /// The buffer to send from. In place the data is copied first, because received data may overwrite the
    /// buffer before the send has read it. The measured time includes the copy.
    const std::byte* send_buffer(const Call& call, size_t bytes) {
        if (call.in != call.out) return call.in;
        if (num_outgoing_ == outgoing_.size()) outgoing_.emplace_back(bytes);
        cuda::DeviceMemory& copy = outgoing_[num_outgoing_++];
        if (copy.bytes() < bytes) copy = cuda::DeviceMemory(bytes);
        cuda::copy_on_device(copy.data(), call.in, bytes, handles_->stream);
        return copy.data();
    }

    /// A launch of another kind than the last one may connect this rank to other ranks and block until they
    /// answer, so the launch runs with a timeout.
    void launch(const char* name, const Call& call, const Launch& operation) {
        const Kind kind = {name, call.count, call.type, call.reduction, call.root};
        if (kind == last_) return operation(*handles_->communicator, handles_->stream);
        run_with_timeout(
            [handles = handles_, operation] { operation(*handles->communicator, handles->stream); });
        last_ = kind;
    }

    /// Runs `calls` in a thread, because they may wait for other ranks without a timeout. Throws WaitTimeout
    /// after this backend's timeout and leaves the thread behind, which keeps the captures of `calls` alive.
    void run_with_timeout(std::function<void()> calls) const {
        std::packaged_task<void()> task([device = device_, calls = std::move(calls)] {
            cuda::set_device(device);
            calls();
        });
        std::future<void> returned = task.get_future();
        std::thread(std::move(task)).detach();
        PollTimer timer(timeout_seconds_);
        while (returned.wait_for(std::chrono::microseconds(100)) != std::future_status::ready) {
            if (!timer.has_time_left()) throw WaitTimeout();
        }
        returned.get();
    }

    /// Polls `done` without sleeping, because a sleep would be part of the measured time.
    void wait_for(const std::function<bool()>& done) const {
        constexpr int kPollsPerHealthCheck = 1024;
        int polls = 0;
        const double begun = seconds_now();
        try {
            const bool in_time = done_within(timeout_seconds_, [&] {
                if (++polls % kPollsPerHealthCheck == 0) handles_->communicator->require_health();
                return done();
            });
            if (!in_time) throw WaitTimeout();
        } catch (const nccl::PeerError&) {
            handles_->communicator->abort().wait_for(nccl::kTimeToAbort);
            // A peer's error late in this wait most likely is a timeout: the peer began to wait a little
            // earlier than this rank, which would soon time out for the same reason.
            if (seconds_now() - begun > timeout_seconds_ / 2) throw WaitTimeout();
            throw;
        } catch (...) {
            // Running kernels would block freeing memory.
            handles_->communicator->abort().wait_for(nccl::kTimeToAbort);
            throw;
        }
    }

    int device_;
    double timeout_seconds_;
    nccl::ConnectionLog* log_;
    std::shared_ptr<Handles> handles_;
    size_t log_begins_;
    Kind last_ = {};
    std::vector<cuda::DeviceMemory> outgoing_;  // copies of data that is sent in place
    size_t num_outgoing_ = 0;
    std::vector<cuda::Event> ends_;  // ends of iterations; the first event is the start of the clock
    size_t num_ends_ = 0, num_ended_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(const mpi::Comm& group, int device, double timeout_seconds,
                                           nccl::ConnectionLog* log) {
    return std::make_unique<NcclBackend>(group, device, timeout_seconds, log);
}

}  // namespace argosy::bench
