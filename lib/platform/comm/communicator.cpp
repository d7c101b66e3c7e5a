#include "comm/communicator.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "gpu/device.h"
#include "gpu/element_type.h"

namespace argosy::comm {

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
        case OpKind::Send:
            return "send";
        case OpKind::Receive:
            return "receive";
    }
    return "";
}

void check(const Op& op, int size) {
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
    if (op.in.defined() && op.out.defined()) ARGOSY_CHECK(op.in.scalar_type() == op.out.scalar_type());
    element_type(op);  // throws for a type that cannot be sent
}

ElementType element_type(const Op& op) {
    return element_type((op.out.defined() ? op.out : op.in).scalar_type());
}

int64_t num_elements(const Op& op) {
    return std::max(op.out.defined() ? op.out.numel() : 0, op.in.defined() ? op.in.numel() : 0);
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

void Communicator::wait_for_gpu() { gpu::synchronize(); }

void Communicator::launch_graph(const std::string& /*what*/, const std::function<uint64_t()>& launch) {
    launch();
}

ElementType element_type(at::ScalarType type) {
    if (const auto known = gpu::element_type(type)) return *known;
    throw RunError("ranks cannot send each other elements of type {}", toString(type));
}

}  // namespace argosy::comm
