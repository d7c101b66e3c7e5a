// CUDA's streams and events, and a pool of events. A stream does its work in order, concurrently with other
// streams; an event marks a point in a stream. Streams and events belong to the device that was current for
// the thread that made them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

struct CUstream_st;  // the structs behind CUDA's handles
struct CUevent_st;

namespace argosy::cuda {

class Event;

/// Work on a stream of high priority gets the device before work that is pending on other streams.
enum class Priority { Normal, High };

/// A stream that does not synchronise with the device's default stream.
class Stream {
  public:
    explicit Stream(Priority priority = Priority::Normal);

    CUstream_st* handle() const { return handle_.get(); }

    /// Whether all work on the stream is done; never blocks. Throws RunError if work failed on the device.
    bool done() const;

    /// Blocks the host until all work on the stream is done, without a timeout.
    void synchronize() const;

  private:
    struct Destroy {
        void operator()(CUstream_st* handle) const;
    };
    std::unique_ptr<CUstream_st, Destroy> handle_;
};

/// A reference to a stream that another object owns: a Stream, or LibTorch.
class StreamView {
  public:
    explicit StreamView(CUstream_st* handle) : handle_(handle) {}
    StreamView(const Stream& stream) : handle_(stream.handle()) {}

    CUstream_st* handle() const { return handle_; }

    /// Returns the unique number of the graph that captures this stream, or 0 if none does. Work on a
    /// captured stream is recorded into the graph instead of being done.
    uint64_t captured_by() const;
    bool is_captured() const { return captured_by() != 0; }

    /// Same as Stream::synchronize().
    void synchronize() const;

    /// Work that is put on the stream after this call begins only after the point that `event` marks. Returns
    /// at once.
    void wait(const Event& event) const;

  private:
    CUstream_st* handle_;
};

/// An event that measures time costs a little more than one that only marks a point.
enum class Timing { Off, On };

class Event {
  public:
    explicit Event(Timing timing = Timing::On);

    /// Marks the end of the work put on `stream` so far.
    void record(const StreamView& stream);

    /// Records the event on a stream that a graph captures: every launch of the graph marks the point anew.
    /// The host may query the event once the launch is done.
    void record_at_each_launch(const StreamView& stream);

    /// Whether the stream has reached the event; never blocks. Throws RunError if work failed on the device.
    /// REQUIRES: this thread records no graph, and the event is not part of a graph that is being recorded.
    bool done() const;

    /// Time between two events by the device's clock. REQUIRES: both have Timing::On, and are done.
    static double seconds_between(const Event& first, const Event& second);

  private:
    friend class StreamView;
    struct Destroy {
        void operator()(CUevent_st* handle) const;
    };
    std::unique_ptr<CUevent_st, Destroy> handle_;
};

/// An event that returns to its pool when the last owner releases it. The pool then reuses it.
using PooledEvent = std::shared_ptr<Event>;

/// A pool of CUDA events. Events are reused, because making an event costs more than recording it. Any thread
/// may call the members.
class EventPool {
  public:
    explicit EventPool(Timing timing) : state_(std::make_shared<State>(timing)) {}

    PooledEvent take() const;
    /// Returns an event that marks the end of the work given to `stream` so far.
    PooledEvent mark(const StreamView& stream) const;

  private:
    struct State {
        explicit State(Timing kind) : timing(kind) {}
        const Timing timing;
        std::mutex mutex;
        std::vector<std::unique_ptr<Event>> unused;
    };
    std::shared_ptr<State> state_;
};

}  // namespace argosy::cuda
