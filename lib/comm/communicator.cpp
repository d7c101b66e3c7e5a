#include "comm/communicator.h"

#include <utility>

#include "base/clock.h"

namespace argosy::comm {

Pending::Pending(std::unique_ptr<Completion> completion, std::vector<at::Tensor> tensors,
                 double* exposed_seconds)
    : completion_(std::move(completion)), tensors_(std::move(tensors)), exposed_seconds_(exposed_seconds) {}

Pending& Pending::operator=(Pending&& other) noexcept {
    if (active()) abandon();
    completion_ = std::move(other.completion_);
    tensors_ = std::exchange(other.tensors_, {});
    exposed_seconds_ = other.exposed_seconds_;
    return *this;
}

Pending::~Pending() {
    if (active()) abandon();
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
