// What carries out collectives for the benchmark: MPI or NCCL, a class each. Calls start operations, which
// end at the next wait(); several may be under way. Buffers live in memory that the backend gives, reached
// from the host through write and read, while no operation is under way.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/element.h"

namespace argosy::bench {

/// One operation. In place `in` and `out` lie in one buffer, as the collective's row says.
struct Call {
    const std::byte* in;
    std::byte* out;
    size_t count;  // elements of a chunk
    ElementType type;
    Operation operation;
    int root;
};

/// A wait that took too long, for whoever knows the ranks to name those who are missing.
class NoAnswer : public std::exception {};

class Backend {
  public:
    virtual ~Backend() = default;

    /// Of this process, in the group that the backend runs on.
    virtual int rank() const = 0;
    virtual int size() const = 0;

    /// Throws UserError when it cannot run operations whose buffers have so many elements.
    virtual void require(size_t elements) const = 0;

    using Memory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
    virtual Memory allocate(size_t bytes) const = 0;
    virtual void write(std::byte* to, std::span<const std::byte> from) const = 0;
    virtual void read(std::span<std::byte> to, const std::byte* from) const = 0;

    /// See Place.
    virtual bool result_at_start() const = 0;

    /// Whether an average divides numbers before it adds them up, and rounds each: its result is not exact
    /// then.
    virtual bool scales_before_average() const = 0;

    virtual void all_gather(const Call&) = 0;
    virtual void all_reduce(const Call&) = 0;
    virtual void all_to_all(const Call&) = 0;
    virtual void broadcast(const Call&) = 0;
    virtual void gather(const Call&) = 0;
    virtual void reduce(const Call&) = 0;
    virtual void reduce_scatter(const Call&) = 0;
    virtual void scatter(const Call&) = 0;
    virtual void send_receive(const Call&) = 0;  // to the next rank in a ring, from the one before

    /// What is called between the two may be launched as one, at the end.
    virtual void begin_together() = 0;
    virtual void end_together() = 0;

    /// Returns when all that was started has ended; throws NoAnswer when that takes too long.
    virtual void wait() = 0;

    /// Iterations are timed from here on; what is started between the ends of two makes one.
    virtual void start_clock() = 0;
    virtual void end_iteration() = 0;
    /// Waits for all, and tells what each iteration took since the one before it had ended.
    virtual std::vector<double> iteration_seconds() = 0;

    /// How this rank reaches others, as far as the library says what it has used by now.
    virtual std::vector<std::string> connections() const = 0;
};

}  // namespace argosy::bench
