// Asynchronous collectives on tensors: the interface that hides MPI and NCCL from the rest of the program. A
// Communicator is a group of ranks; submit() starts one grouped launch and returns a Pending that keeps the
// tensors alive until wait(). Every rank of a group submits the same operations in the same order.
//
// For tensors in the host's memory, an operation has ended when wait() returns. For tensors on a GPU, an
// operation begins after the work that was on LibTorch's current stream at submit(). wait() returns at once
// (nccl_communicator.h). Work that is put on the current stream after wait() runs after the operation, and
// memory that is freed after wait() is reused only after the operation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/element_type.h"

namespace argosy::comm {

enum class OpKind { AllGather, ReduceScatter, AllReduce, Broadcast, AllToAll, Send, Receive };
using argosy::Reduction;

const char* kind_name(OpKind kind);

/// Names the use of an operation for plans and traces.
struct Purpose {
    const char* work = "";               // a literal: the product that needs the result or makes the input
    std::optional<OpKind> part_of = {};  // of a message: the collective that it is a part of
};

/// The parts of an AllToAll, in elements. A part may be empty. A rank receives from a peer what that peer
/// sends to it, and a rank's part for itself is copied.
struct Parts {
    std::vector<int64_t> sent = {}, received = {};  // to and from each rank of the group, by rank
    int64_t total = 0;  // received by all ranks together; the same number on every rank
};

/// One operation along dim 0. The tensors are contiguous and of one type; n is the same on every rank. The
/// reduction is a sum or a maximum.
///   AllGather      out = [size * n, ...] from in = [n, ...]
///   ReduceScatter  out = [n, ...] from in = [size * n, ...]
///   AllReduce      out = in reduced; out may be in
///   Broadcast      out of rank `peer` is copied to out on every other rank
///   AllToAll       out = the parts from rank 0, 1, ..., from in = the parts for rank 0, 1, ...; `parts` has
///                  their sizes. out and in share no memory; both are defined, and may have no elements
///   Send           in goes to rank `peer`. Along a ring (open_ring()), out is this rank's tensor at the
///                  place where the peer receives; a Send writes nothing to it
///   Receive        out comes from rank `peer`; messages between two ranks keep their order
struct Op {
    OpKind kind;
    at::Tensor out = {};
    at::Tensor in = {};
    Reduction reduction = Reduction::Sum;
    int peer = -1;
    Parts parts = {};
    Purpose purpose = {};
};

/// Whether the operation is between two ranks, and whether it reduces its input.
inline bool is_message(const Op& op) { return op.kind == OpKind::Send || op.kind == OpKind::Receive; }
inline bool is_reduction(const Op& op) {
    return op.kind == OpKind::ReduceScatter || op.kind == OpKind::AllReduce;
}

/// Element type of the operation's tensors.
ElementType element_type(const Op& op);

/// Number of elements of the larger of this rank's two buffers; of an AllToAll, parts.total. All ranks have
/// the same number.
int64_t num_elements(const Op& op);

class Communicator;
/// Throws RunError for an operation that this rank of `group` cannot do.
void check(const Op& op, const Communicator& group);

/// The receives and sends that make up an AllToAll: one for each part that is not empty, with a view of the
/// part. The part for this rank itself is among both.
std::vector<Op> messages_of(const Op& op);

/// The tensors of all operations.
std::vector<at::Tensor> tensors_of(std::span<const Op> ops);

/// Whether the tensors of these operations are on a GPU. Throws RunError if only some of them are.
bool on_gpu(std::span<const Op> ops);

/// A backend's handle to operations under way.
class Completion {
  public:
    virtual ~Completion() = default;
    virtual void wait() = 0;  // throws TimeoutError if it blocks the host for too long
};

/// Operations under way. Their results are valid after wait(). The destructor calls wait(). If wait() fails
/// there, or an exception unwinds the stack, the tensors are never freed, because a peer may still write to
/// them.
class Pending {
  public:
    Pending() = default;
    /// wait() adds the time that the host spends in it to `*exposed_seconds`, unless that pointer is null.
    Pending(std::unique_ptr<Completion> completion, std::vector<at::Tensor> tensors, double* exposed_seconds);
    Pending(Pending&&) noexcept = default;
    Pending& operator=(Pending&& other) noexcept;
    ~Pending();

    bool active() const { return completion_ != nullptr; }
    /// Does nothing if no operation is under way.
    void wait();

  private:
    void abandon();

    std::unique_ptr<Completion> completion_;
    std::vector<at::Tensor> tensors_;
    double* exposed_seconds_ = nullptr;
};

/// Kinds of collectives between GPUs. Collectives of one kind run one after the other.
enum class Collectives { Reductions, Others, All };

class Communicator {
  public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    /// The device on which this rank computes and holds the model's tensors. Tensors in the host's memory can
    /// be sent as well, whatever the device.
    c10::Device device() const { return device_; }

    /// COLLECTIVE over `ranks`: makes a group of these ranks, which are ascending rank numbers in this group.
    /// `name` names the mesh axes in messages.
    virtual std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const = 0;

    /// Sets the time limit of the waits that begin from now on, in this group and in every group that has the
    /// same outermost group, and names the setting that errors refer to.
    virtual void limit_waits(double /*seconds*/, const char* /*setting*/) {}

    /// COLLECTIVE: makes the NCCL communicators for reductions, or for the other collectives, of tensors on a
    /// GPU. Without this call the first operation makes them, when the model may have taken the memory that
    /// they need. Ranks in several groups make this call for their groups in the same order.
    virtual void open_collectives(Collectives /*kinds*/) {}

    /// The NCCL communicators that this process has made for this group and all groups with the same
    /// outermost group, and the GPU memory that was taken meanwhile. NCCL takes more when an algorithm first
    /// runs. Memory of make_tensor() that NCCL has registered, or refused.
    struct Connections {
        int number = 0;
        int64_t bytes = 0, registered_bytes = 0, refused_bytes = 0;
        int64_t peer_bytes = 0;  // of make_ring_tensor()
    };
    virtual Connections connections() const { return {}; }

    /// Channels of NCCL communicators, each of which takes a multiprocessor of the GPU, whose operations are
    /// submitted and not waited for: in this group and all groups with the same outermost group, by the
    /// limits of their channels. The number follows the program's order, whatever the GPU has done.
    virtual int channels_under_way() const { return 0; }

    /// A tensor without values on the device, for the operations of one kind: memory that is registered with
    /// NCCL, if the group's options say so. COLLECTIVE then: the ranks make tensors of the same sizes, and
    /// free them, in the same order.
    virtual at::Tensor make_tensor(Collectives kind, at::IntArrayRef shape, const at::TensorOptions& options);

    /// COLLECTIVE: opens the connections for Send and Receive of tensors on a GPU. Call it before the first
    /// Send or Receive. A message goes to a neighbour on the ring of ranks: rank + 1 or rank - 1, modulo
    /// size().
    virtual void open_channels() {}

    /// COLLECTIVE: opens the way for exchanges along the ring of ranks: submissions of one Send to rank + 1
    /// and one Receive from rank - 1, modulo size(), on every rank. They go through channels
    /// (open_channels()) or, if the group's options say so and the ranks' GPUs allow it, by copy engines
    /// (comm/peer_memory.h). A graph cannot have the latter.
    virtual void open_ring() { open_channels(); }

    /// A tensor without values that the rank before may write along the ring. COLLECTIVE: the ranks make
    /// tensors of the same sizes, and free them, in the same order.
    virtual at::Tensor make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options);

    /// Starts the operations and returns. REQUIRES: all their tensors are on a GPU, or none is.
    virtual Pending submit(std::span<const Op> ops) = 0;
    /// submit() for tensors that are in the host's memory, for a backend that has others.
    virtual Pending submit_on_host(std::span<const Op> ops) { return submit(ops); }

    /// Submits and waits.
    void run(std::span<const Op> ops) { submit(ops).wait(); }
    void run(const Op& op) { submit({&op, 1}).wait(); }
    Pending submit(const Op& op) { return submit({&op, 1}); }

    /// Blocks the host until the GPU has done the work on the current stream; the host may read results after
    /// that. There is no timeout here: if an operation between ranks hangs, the timeout of that operation
    /// ends the job.
    virtual void wait_for_gpu();

    /// Runs `launch`, which puts a recorded graph with operations of these ranks on the current stream and
    /// returns the number that cuda::StreamView::captured_by returned while the graph was recorded. The
    /// watchdog watches each of the operations as it does outside of a graph. `what` names the launch in
    /// messages. COLLECTIVE: every rank of the group launches the same graph.
    virtual void launch_graph(const std::string& what, const std::function<uint64_t()>& launch);

    const std::string& name() const { return name_; }

    /// Exposed time since the start: the time that the program spent in submit() and wait() of this group
    /// instead of computing. Waiting for data counts, and so do the backend's copies and reductions. The NCCL
    /// backend counts the time for which the compute stream stood still, as far as measured by now.
    virtual double exposed_seconds() const { return exposed_seconds_; }

    /// For waits of the compute stream of a GPU, whose times the host learns later (the NCCL backend): those
    /// from now on have this label, and the sum of those with a label.
    virtual void label_exposed(int /*label*/) {}
    virtual double exposed_seconds_of(int /*label*/) const { return 0; }

  protected:
    explicit Communicator(std::string name, c10::Device device = c10::kCPU)
        : name_(std::move(name)), device_(device) {}
    double* exposed_seconds_slot() { return &exposed_seconds_; }

    /// For a backend's submit(): counts the lifetime of this object as exposed time.
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

/// Maps LibTorch's element types to this program's. Throws RunError for elements that cannot be sent.
ElementType element_type(at::ScalarType type);

}  // namespace argosy::comm
