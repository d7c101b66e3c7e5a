// The interface through which the benchmark runs collectives; MpiBackend and NcclBackend implement it. A call
// starts an operation and may return before the operation ends. Several operations may be under way; wait()
// waits for all of them. allocate() returns the memory of a buffer. The host accesses a buffer only through
// write() and read(), and only while no operation is under way.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/element.h"

namespace argosy::bench {

/// One operation. In place, `in` and `out` lie in one buffer, at the offsets that Collective::in_place gives.
struct Call {
    const std::byte* in;
    std::byte* out;
    size_t count;  // elements of a chunk
    ElementType type;
    Reduction reduction;
    int root;
};

/// A wait has timed out. The backend does not know the missing ranks; its caller finds them with
/// ControlChannel::timeout_error.
class WaitTimeout : public std::exception {};

class Backend {
  public:
    virtual ~Backend() = default;

    /// This process's rank in the group that the backend runs on, and the group's size.
    virtual int rank() const = 0;
    virtual int size() const = 0;

    /// Throws UserError when the backend cannot run operations on buffers of `elements` elements.
    virtual void require(size_t elements) const = 0;

    using Memory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
    virtual Memory allocate(size_t bytes) const = 0;
    virtual void write(std::byte* to, std::span<const std::byte> from) const = 0;
    virtual void read(std::span<std::byte> to, const std::byte* from) const = 0;

    /// See GroupPosition::result_at_start.
    virtual bool result_at_start() const = 0;

    /// Whether an average scales and rounds each number before the sum, so that the result may be inexact.
    virtual bool scales_before_average() const = 0;

    virtual void all_gather(const Call&) = 0;
    virtual void all_reduce(const Call&) = 0;
    virtual void all_to_all(const Call&) = 0;
    virtual void broadcast(const Call&) = 0;
    virtual void gather(const Call&) = 0;
    virtual void reduce(const Call&) = 0;
    virtual void reduce_scatter(const Call&) = 0;
    virtual void scatter(const Call&) = 0;
    virtual void send_receive(const Call&) = 0;  // a ring: sends to rank + 1, receives from rank - 1

    /// Operations between these two calls may be launched as one, in end_together().
    virtual void begin_together() = 0;
    virtual void end_together() = 0;

    /// Returns when all operations that were started have ended. Throws WaitTimeout after a timeout.
    virtual void wait() = 0;

    /// start_clock() begins the first iteration; end_iteration() ends an iteration and begins the next one.
    /// An iteration consists of the operations that start between these calls.
    virtual void start_clock() = 0;
    virtual void end_iteration() = 0;
    /// Waits for all operations. Returns the seconds of each iteration, from the end of the previous
    /// iteration to its own end.
    virtual std::vector<double> iteration_seconds() = 0;

    /// Describes the connections of this rank that have been used so far, if the library reports them.
    virtual std::vector<std::string> connections() const = 0;
};

/// Times a backend's iterations with the clock of this process.
class HostClock {
  public:
    void start() { ends_ = {seconds_now()}; }
    void end_iteration() { ends_.push_back(seconds_now()); }

    /// For each iteration, the time from the end of the one before it.
    std::vector<double> iteration_seconds() const {
        std::vector<double> seconds;
        for (size_t i = 1; i < ends_.size(); ++i) seconds.push_back(ends_[i] - ends_[i - 1]);
        return seconds;
    }

  private:
    std::vector<double> ends_;
};

}  // namespace argosy::bench
