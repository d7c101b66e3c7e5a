#include "comm/shared_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"

namespace argosy::comm {
namespace {

/// Returns a key that no other segment on the node has.
int64_t make_key(const SharedSegment::Address& address) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() ^ address.process << 40 ^
           address.descriptor << 56;
}

int checked(int result, const std::string& what) {
    if (result < 0) throw RunError("{}: {}", what, std::strerror(errno));
    return result;
}

}  // namespace

SharedBoard::SharedBoard(SharedSegment segment, int64_t ring_bytes)
    : segment_(std::move(segment)), ring_bytes_(ring_bytes) {}

SharedBoard SharedBoard::create(int64_t ring_bytes) {
    SharedBoard board(SharedSegment::create(sizeof(Head) + ring_bytes), ring_bytes);
    new (&board.head()) Head{.key = make_key(board.address())};
    return board;
}

SharedBoard SharedBoard::attach(const SharedSegment::Address& address, int64_t key, int64_t ring_bytes) {
    SharedBoard board(SharedSegment::attach(address, sizeof(Head) + ring_bytes), ring_bytes);
    if (board.key() != key)
        throw RunError("process {} has another key: it is not a rank of this group", address.process);
    return board;
}

// A block starts at the beginning of the ring as soon as it fits there, so that only about twice the bytes in
// flight are touched and occupy the caches.
std::byte* SharedBoard::reserve(int64_t bytes, int64_t consumed) {
    while (!held_.empty() && held_.front().round < consumed) held_.pop_front();
    const int64_t round = head().published.load(std::memory_order_relaxed);
    if (round - consumed >= kMaxRounds) return nullptr;
    int64_t begin = 0;
    if (!held_.empty()) {
        const int64_t oldest = held_.front().begin, newest_end = held_.back().end;
        const bool wrapped = held_.back().begin < oldest;
        begin = newest_end;
        if (!wrapped && (bytes <= oldest || begin + bytes > ring_bytes_)) begin = 0;
        const int64_t limit = wrapped || begin < newest_end ? oldest : ring_bytes_;
        if (begin + bytes > limit) return nullptr;
    }
    ARGOSY_CHECK(begin + bytes <= ring_bytes_, "a block of {} bytes in a ring of {}", bytes, ring_bytes_);
    if (bytes > 0) held_.push_back({round, begin, begin + bytes});
    return ring() + begin;
}

void SharedBoard::publish(std::byte* block, uint64_t signature) {
    const int64_t round = head().published.load(std::memory_order_relaxed);
    head().blocks[round % kMaxRounds] = {block - ring(), signature};
    head().published.store(round + 1, std::memory_order_release);
}

const std::byte* SharedBoard::block(int64_t round) const {
    return ring() + head().blocks[round % kMaxRounds].offset;
}

SharedSegment::SharedSegment(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
    void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (start == MAP_FAILED) {
        const int reason = errno;
        close(descriptor);
        throw RunError("cannot map {} bytes of shared memory: {}", bytes, std::strerror(reason));
    }
    data_ = static_cast<std::byte*>(start);
}

SharedSegment SharedSegment::create(size_t bytes) {
    const int descriptor = checked(memfd_create("argosy", MFD_CLOEXEC), "memfd_create failed");
    if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
        const int reason = errno;
        close(descriptor);
        throw RunError("cannot allocate {} bytes of shared memory: {}", bytes, std::strerror(reason));
    }
    return SharedSegment(descriptor, bytes);
}

SharedSegment SharedSegment::attach(const Address& address, size_t bytes) {
    const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
    const int descriptor = checked(open(path.c_str(), O_RDWR | O_CLOEXEC), "cannot open " + path);
    // Touching a mapping past the end of its file is fatal.
    if (lseek(descriptor, 0, SEEK_END) != static_cast<off_t>(bytes)) {
        close(descriptor);
        throw RunError("{} is not the shared memory of a rank: its size differs", path);
    }
    SharedSegment segment(descriptor, bytes);
    segment.close_descriptor();
    return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

SharedSegment::~SharedSegment() {
    if (data_) munmap(data_, bytes_);
    close_descriptor();
}

void SharedSegment::close_descriptor() {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

SharedSegment::Address SharedSegment::address() const { return {getpid(), descriptor_}; }

}  // namespace argosy::comm
