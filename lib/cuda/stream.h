// Streams, which do their work in order, one beside the other, and events, which mark a point in one. Each
// belongs to the device of the thread that made it.
#pragma once

#include <cstdint>
#include <memory>

struct CUstream_st;  // CUDA's own names of what its handles point at
struct CUevent_st;

namespace argosy::cuda {

class Event;

/// What is given to a stream of high priority gets the device before what waits on others.
enum class Priority { Normal, High };

/// It does not wait for the device's default stream, nor that for it.
class Stream {
  public:
    explicit Stream(Priority priority = Priority::Normal);

    CUstream_st* handle() const { return handle_.get(); }

    /// Whether everything given to it is done; never blocks. Throws RunError for what failed on the device.
    bool done() const;

    /// Waits for that, without a limit of time.
    void synchronize() const;

  private:
    struct Destroy {
        void operator()(CUstream_st* handle) const;
    };
    std::unique_ptr<CUstream_st, Destroy> handle_;
};

/// A stream that somebody else owns: one of the above, or LibTorch's.
class StreamView {
  public:
    explicit StreamView(CUstream_st* handle) : handle_(handle) {}
    StreamView(const Stream& stream) : handle_(stream.handle()) {}

    CUstream_st* handle() const { return handle_; }

    /// The graph that what is given to it becomes part of, instead of being done; a number that no other
    /// graph has. 0: none.
    uint64_t captured_by() const;
    bool is_captured() const { return captured_by() != 0; }

    /// As Stream's.
    void synchronize() const;

    /// What is given to it from now on begins only after what `event` marks; the host goes on at once.
    void wait(const Event& event) const;

  private:
    CUstream_st* handle_;
};

/// Events that measure cost a little more than those that only mark a point.
enum class Timing { Off, On };

class Event {
  public:
    explicit Event(Timing timing = Timing::On);

    /// Marks the end of what was given to `stream` so far.
    void record(const StreamView& stream);

    /// On a stream that a graph captures: every launch of the graph marks the point anew, which the host may
    /// ask for once the launch is done.
    void record_at_each_launch(const StreamView& stream);

    /// Whether the stream has come to it; never blocks. Throws RunError for what failed on the device.
    /// REQUIRES: neither it nor this thread's stream is part of a graph that is being recorded.
    bool done() const;

    /// By the device's clock. REQUIRES: both measure, and are done.
    static double seconds_between(const Event& first, const Event& second);

  private:
    friend class StreamView;
    struct Destroy {
        void operator()(CUevent_st* handle) const;
    };
    std::unique_ptr<CUevent_st, Destroy> handle_;
};

}  // namespace argosy::cuda
