#include "bench/mpi_backend.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace argosy::bench {
namespace {

constexpr size_t kAlignment = 4096;

}  // namespace

MpiBackend::MpiBackend(mpi::Comm group, double timeout_seconds)
    : group_(std::move(group)),
      timeout_seconds_(timeout_seconds),
      rank_(group_.rank()),
      size_(group_.size()) {}

Backend::Memory MpiBackend::allocate(size_t bytes) const {
    constexpr auto kAligned = std::align_val_t(kAlignment);
    auto* const memory = static_cast<std::byte*>(::operator new(bytes, kAligned, std::nothrow));
    if (!memory) throw RunError("no memory for a buffer of {} bytes: use a smaller --maxbytes", bytes);
    std::memset(memory, 0, bytes);  // makes the kernel map all pages now, not during a measurement
    return {memory, [](std::byte* pointer) { ::operator delete(pointer, kAligned); }};
}

void MpiBackend::write(std::byte* to, std::span<const std::byte> from) const {
    std::memcpy(to, from.data(), from.size());
}

void MpiBackend::read(std::span<std::byte> to, const std::byte* from) const {
    std::memcpy(to.data(), from, to.size());
}

void MpiBackend::all_gather(const Call& call) {
    requests_.push_back(group_.all_gather(call.out, call.in, call.count, call.type));
}

void MpiBackend::all_reduce(const Call& call) {
    requests_.push_back(group_.all_reduce(call.out, call.in, call.count, call.type, call.reduction));
}

void MpiBackend::all_to_all(const Call& call) {
    requests_.push_back(group_.all_to_all(call.out, call.in, call.count, call.type));
}

/// MPI broadcasts from and to one buffer per rank: the input of the root, the output of every other rank.
void MpiBackend::broadcast(const Call& call) {
    auto* const buffer = rank_ == call.root ? const_cast<std::byte*>(call.in) : call.out;
    requests_.push_back(group_.broadcast(buffer, call.count, call.type, call.root));
}

void MpiBackend::gather(const Call& call) {
    requests_.push_back(group_.gather(call.out, call.in, call.count, call.type, call.root));
}

void MpiBackend::reduce(const Call& call) {
    requests_.push_back(group_.reduce(call.out, call.in, call.count, call.type, call.reduction, call.root));
}

void MpiBackend::reduce_scatter(const Call& call) {
    requests_.push_back(group_.reduce_scatter(call.out, call.in, call.count, call.type, call.reduction));
}

void MpiBackend::scatter(const Call& call) {
    requests_.push_back(group_.scatter(call.out, call.in, call.count, call.type, call.root));
}

/// In place, first copies the data to send, as MPI_Sendrecv_replace does: received data may overwrite the
/// buffer before the send has read it. REQUIRES: no other send in place is under way.
void MpiBackend::send_receive(const Call& call) {
    const std::byte* source = call.in;
    if (call.in == call.out) {
        outgoing_.assign(call.in, call.in + call.count * size_bytes(call.type));
        source = outgoing_.data();
    }
    const int before = (rank_ + size_ - 1) % size_, next = (rank_ + 1) % size_;
    requests_.push_back(group_.receive(call.out, call.count, call.type, before));
    requests_.push_back(group_.send(source, call.count, call.type, next, /*synchronous=*/false));
}

void MpiBackend::wait() {
    if (!done_within(timeout_seconds_, [&] { return mpi::test_all(requests_); })) throw WaitTimeout();
    requests_.clear();
}

void MpiBackend::start_clock() { ends_ = {seconds_now()}; }

void MpiBackend::end_iteration() {
    wait();
    ends_.push_back(seconds_now());
}

std::vector<double> MpiBackend::iteration_seconds() {
    std::vector<double> seconds;
    for (size_t i = 1; i < ends_.size(); ++i) seconds.push_back(ends_[i] - ends_[i - 1]);
    return seconds;
}

}  // namespace argosy::bench
