// Collectives on tensors with asynchronous completion: what the program knows of MPI and NCCL. A group of
// ranks is a Communicator; `submit` starts one grouped launch and hands back a Pending that keeps the tensors
// alive until wait(). Every rank of a group submits the same operations in the same order.
//
// Tensors in the host's memory: an operation has ended when wait() returns. Tensors on a GPU: wait() returns
// at once, and what is put on LibTorch's current stream from then on comes after the operation; so it is with
// memory that is freed then. submit() begins after what was on that stream before. See
// nccl_communicator.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/element_type.h"

namespace argosy::comm {

enum class OpKind { AllGather, ReduceScatter, AllReduce, Broadcast, Send, Receive };
enum class Reduction { Sum, Max };

const char* kind_name(OpKind kind);

/// One operation on dim 0, equal counts on every rank, contiguous tensors of one type.
///   AllGather      out = [size * n, ...] from in = [n, ...]
///   ReduceScatter  out = [n, ...] from in = [size * n, ...]
///   AllReduce      out = in reduced; out may be in
///   Broadcast      out on `peer` reaches out everywhere
///   Send, Receive  in to, out from `peer`; messages between two ranks arrive in the order of their
///   submission
struct Op {
    OpKind kind;
    at::Tensor out = {};
    at::Tensor in = {};
    Reduction reduction = Reduction::Sum;
    int peer = -1;
};

/// Of the operation's tensors.
ElementType element_type(const Op& op);

/// Throws RunError for an operation that no group of `size` ranks can do.
void check(const Op& op, int size);

/// Those of all operations.
std::vector<at::Tensor> tensors_of(std::span<const Op> ops);

/// What a backend must be able to say of operations under way.
class Completion {
  public:
    virtual ~Completion() = default;
    virtual void wait() = 0;  // on the host: throws TimeoutError when a peer stays away
};

/// Operations under way. The results are valid after wait(). One that is dropped without wait(), as when an
/// error unwinds, never gives its memory back: a peer may still write into it.
class Pending {
  public:
    Pending() = default;
    /// The time that the host spends in wait() is added to `exposed_seconds`, where there is one.
    Pending(std::unique_ptr<Completion> completion, std::vector<at::Tensor> tensors, double* exposed_seconds);
    Pending(Pending&&) noexcept = default;
    Pending& operator=(Pending&& other) noexcept;
    ~Pending();

    bool active() const { return completion_ != nullptr; }
    /// Does nothing when nothing is under way.
    void wait();

  private:
    void abandon();

    std::unique_ptr<Completion> completion_;
    std::vector<at::Tensor> tensors_;
    double* exposed_seconds_ = nullptr;
};

class Communicator {
  public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    /// Where this rank computes: what a model's tensors lie on. Tensors in the processor's memory can be sent
    /// whatever it is.
    c10::Device device() const { return device_; }

    /// COLLECTIVE over `ranks`, which are ascending numbers in this group. `name` is the mesh axis for
    /// messages.
    virtual std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const = 0;

    /// COLLECTIVE: whatever ranks need before the first Send or Receive of tensors on a GPU, which goes to a
    /// rank beside one's own: its number is one more or one less, or the two are the first and the last.
    virtual void open_channels() {}

    /// Whether what is submitted can become part of a graph that is being recorded.
    virtual bool recordable() const { return true; }

    /// All tensors lie on a GPU, or none does.
    virtual Pending submit(std::span<const Op> ops) = 0;

    /// submit and wait.
    void run(std::span<const Op> ops) { submit(ops).wait(); }
    void run(const Op& op) { submit({&op, 1}).wait(); }
    Pending submit(const Op& op) { return submit({&op, 1}); }

    /// Waits on the host until a GPU has done what is on the current stream, as whoever reads a result must.
    /// The wait has no limit of its own: where ranks wait for each other in vain, that ends the job. `place`
    /// is where this rank waits, in messages.
    virtual void wait_for_gpu(const std::string& place);

    /// Runs `launch`, which puts a recorded graph with operations of these ranks on the current stream: each
    /// of them is looked after as it would be outside of a graph. COLLECTIVE: every rank of the group
    /// launches the same. `what` is it called in messages. `launch` returns the graph's number, which
    /// cuda::StreamView::captured_by gave when it was recorded.
    virtual void watched(const std::string& what, const std::function<uint64_t()>& launch);

    const std::string& name() const { return name_; }

    /// Time that the program spent in submit() and wait() on this group instead of computing, since the
    /// start: waiting for data, and whatever copying and adding up the backend does in them. On a GPU that is
    /// the time that the stream of computation stood still, as far as it is known by now.
    virtual double exposed_seconds() const { return exposed_seconds_; }

  protected:
    explicit Communicator(std::string name, c10::Device device = c10::kCPU)
        : name_(std::move(name)), device_(device) {}
    double* exposed_seconds_slot() { return &exposed_seconds_; }

    /// For a backend's submit(): the time until its end is exposed.
    class Exposed {
      public:
        explicit Exposed(Communicator& group) : seconds_(group.exposed_seconds_) {}
        ~Exposed() { seconds_ += seconds_now() - start_; }
        Exposed(const Exposed&) = delete;

      private:
        double& seconds_;
        double start_ = seconds_now();
    };

  private:
    std::string name_;
    c10::Device device_;
    double exposed_seconds_ = 0;
};

}  // namespace argosy::comm
