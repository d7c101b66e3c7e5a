#include "comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace argosy::comm {
namespace {

int checked(int result, const std::string& what) {
    if (result < 0) throw RunError("{}: {}", what, std::strerror(errno));
    return result;
}

}  // namespace

SharedSegment::SharedSegment(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
    void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (start == MAP_FAILED) {
        const int reason = errno;
        close(descriptor);
        throw RunError("mapping {} bytes of shared memory: {}", bytes, std::strerror(reason));
    }
    data_ = static_cast<std::byte*>(start);
}

SharedSegment SharedSegment::create(size_t bytes) {
    const int descriptor = checked(memfd_create("argosy", MFD_CLOEXEC), "memfd_create");
    if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
        const int reason = errno;
        close(descriptor);
        throw RunError("{} bytes of shared memory: {}", bytes, std::strerror(reason));
    }
    return SharedSegment(descriptor, bytes);
}

SharedSegment SharedSegment::attach(const Address& address, size_t bytes) {
    const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
    const int descriptor = checked(open(path.c_str(), O_RDWR | O_CLOEXEC), "opening " + path);
    // Touching a mapping past the end of its file is fatal.
    if (lseek(descriptor, 0, SEEK_END) != static_cast<off_t>(bytes)) {
        close(descriptor);
        throw RunError("{} is not the shared memory of a rank", path);
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
