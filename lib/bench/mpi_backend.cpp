#include "bench/mpi_backend.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace argosy::bench {
namespace {

constexpr size_t kAlignment = 4096;

/// An average becomes a sum, which wait() divides.
mpi::Reduction mpi_reduction(const Call& call) {
    switch (call.reduction) {
        case Reduction::Product:
            return mpi::Reduction::Product;
        case Reduction::Min:
            return mpi::Reduction::Min;
        case Reduction::Max:
            return mpi::Reduction::Max;
        default:
            return mpi::Reduction::Sum;
    }
}

}  // namespace

MpiBackend::MpiBackend(mpi::Comm group, double timeout_seconds)
    : group_(std::move(group)),
      timeout_seconds_(timeout_seconds),
      rank_(group_.rank()),
      size_(group_.size()) {}

void MpiBackend::require(size_t elements) const {
    if (elements <= mpi::kMaxElements) return;
    throw UserError(
        "one operation has {} elements, but MPI 3 counts with int, up to {}: use a smaller --maxbytes or a "
        "wider --datatype",
        elements, mpi::kMaxElements);
}

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
    requests_.push_back(group_.all_reduce(call.out, call.in, call.count, call.type, mpi_reduction(call)));
    divide_later(call);
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
    requests_.push_back(
        group_.reduce(call.out, call.in, call.count, call.type, mpi_reduction(call), call.root));
    if (rank_ == call.root) divide_later(call);
}

void MpiBackend::reduce_scatter(const Call& call) {
    requests_.push_back(group_.reduce_scatter(call.out, call.in, call.count, call.type, mpi_reduction(call)));
    divide_later(call);
}

void MpiBackend::scatter(const Call& call) {
    requests_.push_back(group_.scatter(call.out, call.in, call.count, call.type, call.root));
}

/// In place, first copies the data to send, as MPI_Sendrecv_replace does: received data may overwrite the
/// buffer before the send has read it.
void MpiBackend::send_receive(const Call& call) {
    const std::byte* source = call.in;
    if (call.in == call.out) {
        const size_t bytes = call.count * size_bytes(call.type);
        if (num_outgoing_ == outgoing_.size()) outgoing_.emplace_back();
        auto& copy = outgoing_[num_outgoing_++];
        copy.assign(call.in, call.in + bytes);
        source = copy.data();
    }
    const int before = (rank_ + size_ - 1) % size_, next = (rank_ + 1) % size_;
    requests_.push_back(group_.receive(call.out, call.count, call.type, before));
    requests_.push_back(group_.send(source, call.count, call.type, next, /*synchronous=*/false));
}

void MpiBackend::divide_later(const Call& call) {
    if (call.reduction == Reduction::Average) averages_.push_back(call);
}

void MpiBackend::wait() {
    if (!done_within(timeout_seconds_, [&] { return mpi::test_all(requests_); })) throw WaitTimeout();
    requests_.clear();
    num_outgoing_ = 0;
    for (const Call& call : averages_) {
        divide({call.out, call.count * size_bytes(call.type)}, call.type, size_);
    }
    averages_.clear();
}

void MpiBackend::end_iteration() {
    wait();
    clock_.end_iteration();
}

}  // namespace argosy::bench
