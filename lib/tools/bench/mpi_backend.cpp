#include "bench/mpi_backend.h"

#include <algorithm>
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

template <class Run>
void MpiBackend::in_pieces(const Call& call, int num_chunks, Run run) {
    const size_t piece = std::max<size_t>(1, group_.max_elements() / static_cast<size_t>(num_chunks));
    for (size_t first = 0; first < call.count; first += piece) {
        const size_t offset = first * size_bytes(call.type);
        requests_.push_back(run(call.out + offset, call.in + offset, std::min(piece, call.count - first)));
    }
}

void MpiBackend::all_gather(const Call& call) {
    in_pieces(call, size_, [&](std::byte* out, const std::byte* in, size_t count) {
        return group_.all_gather(out, in, count, call.type, call.count);
    });
}

void MpiBackend::all_reduce(const Call& call) {
    in_pieces(call, 1, [&](std::byte* out, const std::byte* in, size_t count) {
        return group_.all_reduce(out, in, count, call.type, call.reduction);
    });
}

void MpiBackend::all_to_all(const Call& call) {
    in_pieces(call, size_, [&](std::byte* out, const std::byte* in, size_t count) {
        return group_.all_to_all(out, in, count, call.type, call.count);
    });
}

/// MPI broadcasts from and to one buffer per rank: the input of the root, the output of every other rank.
void MpiBackend::broadcast(const Call& call) {
    in_pieces(call, 1, [&](std::byte* out, const std::byte* in, size_t count) {
        auto* const buffer = rank_ == call.root ? const_cast<std::byte*>(in) : out;
        return group_.broadcast(buffer, count, call.type, call.root);
    });
}

void MpiBackend::gather(const Call& call) {
    in_pieces(call, size_, [&](std::byte* out, const std::byte* in, size_t count) {
        return group_.gather(out, in, count, call.type, call.root, call.count);
    });
}

void MpiBackend::reduce(const Call& call) {
    in_pieces(call, 1, [&](std::byte* out, const std::byte* in, size_t count) {
        return group_.reduce(out, in, count, call.type, call.reduction, call.root);
    });
}

void MpiBackend::reduce_scatter(const Call& call) {
    if (call.count * static_cast<size_t>(size_) > group_.max_elements()) {
        reduce_scatter_in_pieces(call);
    } else {
        requests_.push_back(group_.reduce_scatter(call.out, call.in, call.count, call.type, call.reduction));
    }
}

/// MPI reduces no types with gaps, so a piece is a window of the whole input: each rank gets the part of the
/// window that lies in its chunk. In place, the result of a window is at the window's start until wait().
void MpiBackend::reduce_scatter_in_pieces(const Call& call) {
    const size_t total = call.count * static_cast<size_t>(size_), bytes = size_bytes(call.type);
    size_t received = 0;
    for (size_t first = 0; first < total; first += group_.max_elements()) {
        const size_t end = std::min(total, first + group_.max_elements());
        std::vector<int>& counts = counts_.emplace_back();
        for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
            const size_t from = std::max(first, rank * call.count),
                         to = std::min(end, (rank + 1) * call.count);
            counts.push_back(to > from ? static_cast<int>(to - from) : 0);
        }
        std::byte* const wanted = call.out + received * bytes;
        const bool in_place = call.in == call.out;
        std::byte* const out = in_place ? call.out + first * bytes : wanted;
        requests_.push_back(
            group_.reduce_scatter(out, call.in + first * bytes, counts, call.type, call.reduction));
        const auto own = static_cast<size_t>(counts[rank_]);
        if (in_place) moves_.push_back({wanted, out, own * bytes});
        received += own;
    }
}

void MpiBackend::scatter(const Call& call) {
    in_pieces(call, size_, [&](std::byte* out, const std::byte* in, size_t count) {
        return group_.scatter(out, in, count, call.type, call.root, call.count);
    });
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
    Call sent = call;
    sent.in = source;
    in_pieces(sent, 1, [&](std::byte* out, const std::byte*, size_t count) {
        return group_.receive(out, count, call.type, before);
    });
    in_pieces(sent, 1, [&](std::byte*, const std::byte* in, size_t count) {
        return group_.send(in, count, call.type, next, /*synchronous=*/false);
    });
}

void MpiBackend::wait() {
    if (!done_within(timeout_seconds_, [&] { return mpi::test_all(requests_); })) throw WaitTimeout();
    requests_.clear();
    num_outgoing_ = 0;
    counts_.clear();
    for (const auto& [to, from, bytes] : moves_) std::memmove(to, from, bytes);
    moves_.clear();
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
