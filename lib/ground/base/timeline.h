// A trace of what a rank did and when, in the format of Chrome's trace viewer, which Perfetto reads too.
//
// The spans of the host's thread nest: a phase of a step, an operation of the program, a submission or a
// wait. Operations between ranks are under way beside them, from their submission to the end of the wait for
// them. On a GPU, a span of an operation is the time in which the host queued it. A curve shows the bytes of
// tensors at the beginning of each operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace argosy {

/// A trace begins with this mark.
inline constexpr const char* kTraceMark = "{\"displayTimeUnit\"";

class Timeline {
  public:
    /// Gets each span of the host's thread as it begins and ends, recorded or not: a profiler.
    struct SpanSink {
        void (*begin)(const char* name);  // null: there is none
        void (*end)();
    };
    explicit Timeline(int rank, SpanSink sink = {}) : rank_(rank), sink_(sink) {}
    Timeline(const Timeline&) = delete;

    /// Between start() and stop() events are recorded. Otherwise the functions below do nothing but tell the
    /// sink.
    /// `clock_offset`: seconds to add to seconds_now(), so that all ranks have one clock. `id`: the same on
    /// all ranks and for no other trace.
    void start(double clock_offset, const std::string& id);
    bool recording() const { return recording_; }
    bool takes_spans() const { return recording_ || sink_.begin; }
    /// Ends the recording and returns the trace as JSON. REQUIRES: every span has ended.
    std::string stop();

    /// A span of the host's thread, which lasts as long as this object.
    class [[nodiscard]] Span {
      public:
        Span(Timeline& timeline, const std::string& name);
        Span(const Span&) = delete;
        ~Span();

      private:
        Timeline* timeline_;  // null: nobody takes it
    };
    /// Begins the span of the next operation and ends that of the operation before it. The innermost Span
    /// that was open at the first operation ends the last one.
    void next_operation(std::string name);

    /// Adds a point to the curve of the bytes of tensors.
    void memory(int64_t bytes);

    /// Operations between ranks are under way from now on. Returns their number, 0 if nothing is recorded.
    uint64_t launched(const std::string& name);
    void landed(uint64_t number);

  private:
    struct Open {
        std::string name;
        double begin;
        bool is_operation;
    };
    double now_us() const;
    std::string event(char phase, const std::string& name, double us) const;
    void open(std::string name, bool is_operation);
    void close();
    void close_operation();
    void add(const std::string& event);

    const int rank_;
    const SpanSink sink_;
    double clock_offset_ = 0;
    std::string id_;
    bool recording_ = false;
    uint64_t num_launched_ = 0;
    std::vector<Open> open_;
    std::vector<std::pair<uint64_t, std::string>> under_way_;  // launches by number
    std::string events_;                                       // JSON objects, with commas between them
};

}  // namespace argosy
