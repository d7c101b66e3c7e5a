#include "comm/communicator.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "gpu/device.h"
#include "gpu/element_type.h"

namespace argosy::comm {
namespace {

void check_parts(const Op& op, const Communicator& group) {
    ARGOSY_CHECK(op.in.defined() && op.out.defined(), "all-to-all without one of its buffers");
    const auto check_sizes = [&](const std::vector<int64_t>& parts, const at::Tensor& buffer) {
        ARGOSY_CHECK(std::ssize(parts) == group.size(), "all-to-all with {} parts on {} ranks", parts.size(),
                     group.size());
        ARGOSY_CHECK(std::ranges::min(parts) >= 0, "all-to-all with a part of {} elements",
                     std::ranges::min(parts));
        const int64_t sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
        ARGOSY_CHECK(sum == buffer.numel(), "all-to-all with parts of {} elements in a buffer of {}", sum,
                     buffer.numel());
        ARGOSY_CHECK(sum <= op.parts.total, "all-to-all of {} elements, of which one rank has {}",
                     op.parts.total, sum);
    };
    check_sizes(op.parts.sent, op.in);
    check_sizes(op.parts.received, op.out);
    const int64_t sent = op.parts.sent[group.rank()], received = op.parts.received[group.rank()];
    ARGOSY_CHECK(sent == received, "all-to-all in which rank {} sends itself {} elements and receives {}",
                 group.rank(), sent, received);
}

}  // namespace

const char* kind_name(OpKind kind) {
    switch (kind) {
        case OpKind::AllGather:
            return "all-gather";
        case OpKind::ReduceScatter:
            return "reduce-scatter";
        case OpKind::AllReduce:
            return "all-reduce";
        case OpKind::Broadcast:
            return "broadcast";
        case OpKind::AllToAll:
            return "all-to-all";
        case OpKind::Send:
            return "send";
        case OpKind::Receive:
            return "receive";
    }
    return "";
}

void check(const Op& op, const Communicator& group) {
    const int size = group.size();
    for (const at::Tensor* tensor : {&op.out, &op.in}) {
        ARGOSY_CHECK(!tensor->defined() || tensor->is_contiguous(), "{} of a tensor that is not contiguous",
                     kind_name(op.kind));
    }
    if (op.kind == OpKind::AllGather) {
        ARGOSY_CHECK(op.out.numel() == op.in.numel() * size, "{} elements gathered from {} on {} ranks",
                     op.out.numel(), op.in.numel(), size);
    }
    if (op.kind == OpKind::ReduceScatter) {
        ARGOSY_CHECK(op.in.numel() == op.out.numel() * size, "{} elements scattered as {} to {} ranks",
                     op.in.numel(), op.out.numel(), size);
    }
    if (is_message(op) || op.kind == OpKind::Broadcast) {
        ARGOSY_CHECK(op.peer >= 0 && op.peer < size, "{} with rank {} of {} ranks", kind_name(op.kind),
                     op.peer, size);
    }
    if (op.kind == OpKind::AllToAll) check_parts(op, group);
    if (op.in.defined() && op.out.defined()) ARGOSY_CHECK(op.in.scalar_type() == op.out.scalar_type());
    element_type(op);  // throws for a type that cannot be sent
}

ElementType element_type(const Op& op) {
    return element_type((op.out.defined() ? op.out : op.in).scalar_type());
}

int64_t num_elements(const Op& op) {
    if (op.kind == OpKind::AllToAll) return op.parts.total;
    return std::max(op.out.defined() ? op.out.numel() : 0, op.in.defined() ? op.in.numel() : 0);
}

std::vector<Op> messages_of(const Op& op) {
    std::vector<Op> messages;
    const at::Tensor in = op.in.view(-1), out = op.out.view(-1);
    int64_t sent = 0, received = 0;  // so far
    for (int peer = 0; peer < std::ssize(op.parts.sent); ++peer) {
        const int64_t to_peer = op.parts.sent[peer], from_peer = op.parts.received[peer];
        if (from_peer > 0)
            messages.push_back(
                {.kind = OpKind::Receive, .out = out.narrow(0, received, from_peer), .peer = peer});
        if (to_peer > 0)
            messages.push_back({.kind = OpKind::Send, .in = in.narrow(0, sent, to_peer), .peer = peer});
        sent += to_peer;
        received += from_peer;
    }
    return messages;
}

std::vector<at::Tensor> tensors_of(std::span<const Op> ops) {
    std::vector<at::Tensor> tensors;
    for (const Op& op : ops) {
        if (op.out.defined()) tensors.push_back(op.out);
        if (op.in.defined()) tensors.push_back(op.in);
    }
    return tensors;
}

bool on_gpu(std::span<const Op> ops) {
    const std::vector<at::Tensor> tensors = tensors_of(ops);
    const auto num_on_gpu = std::ranges::count_if(tensors, gpu::holds);
    ARGOSY_CHECK(num_on_gpu == 0 || num_on_gpu == std::ssize(tensors),
                 "{} of {} tensors of a submission are on a GPU", num_on_gpu, tensors.size());
    return num_on_gpu > 0;
}

Pending::Pending(std::unique_ptr<Completion> completion, std::vector<at::Tensor> tensors,
                 double* exposed_seconds)
    : completion_(std::move(completion)), tensors_(std::move(tensors)), exposed_seconds_(exposed_seconds) {}

Pending& Pending::operator=(Pending&& other) noexcept {
    completion_.swap(other.completion_);
    tensors_.swap(other.tensors_);
    std::swap(exposed_seconds_, other.exposed_seconds_);
    return *this;
}

Pending::~Pending() {
    if (!active()) return;
    try {
        if (std::uncaught_exceptions() > 0) {
            abandon();
        } else {
            wait();
        }
    } catch (const Error& error) {
        spdlog::error("{}", error.what());
        abandon();
    }
}

void Pending::wait() {
    if (!active()) return;
    const double start = seconds_now();
    completion_->wait();
    if (exposed_seconds_) *exposed_seconds_ += seconds_now() - start;
    completion_.reset();
    tensors_.clear();
}

void Pending::abandon() {
    // Leaked, because a peer may still write to the tensors.
    completion_.release();
    new std::vector<at::Tensor>(std::move(tensors_));
}

at::Tensor Communicator::make_tensor(Collectives /*kind*/, at::IntArrayRef shape,
                                     const at::TensorOptions& options) {
    return at::empty(shape, options);
}

at::Tensor Communicator::make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
    return at::empty(shape, options);
}

void Communicator::wait_for_gpu() { gpu::synchronize(); }

void Communicator::launch_graph(const std::string& /*what*/, const std::function<uint64_t()>& launch) {
    launch();
}

ElementType element_type(at::ScalarType type) {
    if (const auto known = gpu::element_type(type)) return *known;
    throw RunError("ranks cannot send each other elements of type {}", toString(type));
}

}  // namespace argosy::comm
