#include "comm/communicator.h"

#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace argosy::comm {

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
