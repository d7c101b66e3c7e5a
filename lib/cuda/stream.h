// Streams, which do their work in order, one beside the other, and events, which mark a point in one. Each
// belongs to the device of the thread that made it.
#pragma once

#include <memory>

struct CUstream_st;  // CUDA's own names of what its handles point at
struct CUevent_st;

namespace argosy::cuda {

/// It does not wait for the device's default stream, nor that for it.
class Stream {
  public:
    Stream();

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

class Event {
  public:
    Event();

    /// Marks the end of what was given to `stream` so far.
    void record(const Stream& stream);

    /// Whether the stream has come to it; never blocks. Throws RunError for what failed on the device.
    bool done() const;

    /// By the device's clock. REQUIRES: both are done.
    static double seconds_between(const Event& first, const Event& second);

  private:
    struct Destroy {
        void operator()(CUevent_st* handle) const;
    };
    std::unique_ptr<CUevent_st, Destroy> handle_;
};

}  // namespace argosy::cuda
