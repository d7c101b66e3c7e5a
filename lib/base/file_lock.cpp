#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace argosy {
namespace {

bool is_gone(int descriptor, const std::filesystem::path& path) {
    struct stat held = {}, named = {};
    return ::stat(path.c_str(), &named) != 0 || ::fstat(descriptor, &held) != 0 ||
           held.st_ino != named.st_ino;
}

}  // namespace

FileLock::FileLock(std::filesystem::path path) : path_(std::move(path)) {
    constexpr mode_t kReadableByAll = 0644;
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kReadableByAll);
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), path_.string());
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

FileLock::~FileLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

FileLock::Attempt FileLock::try_to_lock(std::string_view holder) {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK || errno == EINTR) return Attempt::Held;
        write_holder(holder);
        return Attempt::NoLocks;
    }
    if (is_gone(descriptor_, path_)) return Attempt::Gone;
    write_holder(holder);
    return Attempt::Taken;
}

std::string FileLock::holder() const {
    char text[512] = {};
    const ssize_t size = ::pread(descriptor_, text, sizeof text, 0);
    return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

void FileLock::remove() const noexcept { ::unlink(path_.c_str()); }

void FileLock::write_holder(std::string_view holder) const {
    const bool written =
        ::ftruncate(descriptor_, 0) == 0 &&
        ::pwrite(descriptor_, holder.data(), holder.size(), 0) == static_cast<ssize_t>(holder.size());
    if (!written)
        spdlog::warn("cannot write the holder's name into {}: {}", path_.string(), std::strerror(errno));
}

std::string this_process() {
    char host[HOST_NAME_MAX + 1] = {};
    ::gethostname(host, HOST_NAME_MAX);
    return fmt::format("process {} on {}", ::getpid(), host);
}

}  // namespace argosy
