#include "comm/communicator.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"

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

std::vector<at::Tensor> tensors_of(std::span<const Op> ops) {
    std::vector<at::Tensor> tensors;
    for (const Op& op : ops) {
        if (op.out.defined()) tensors.push_back(op.out);
        if (op.in.defined()) tensors.push_back(op.in);
    }
    return tensors;
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
    *exposed_seconds_ += seconds_now() - start;
    completion_.reset();
    tensors_.clear();
}

void Pending::abandon() {
    completion_.release();
    new std::vector<at::Tensor>(std::move(tensors_));
}

}  // namespace argosy::comm
