#include "checkpoint/place_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/raw_file.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

int open_lock(const fs::path& path) {
    constexpr mode_t kPermissions = 0666;  // less what the umask takes
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kPermissions);
    if (file >= 0) return file;
    const int reason = errno;
    if (reason == EIO || *remedy_for(reason)) {
        throw RunError("cannot make {}: {}{}", path.string(), std::strerror(reason), remedy_for(reason));
    }
    throw UserError("cannot make {}: {}", path.string(), std::strerror(reason));
}

}  // namespace

PlaceLock::PlaceLock(const fs::path& place) : path_(fs::path(place) += ".partial.lock") {
    for (;; ::close(file_)) {
        file_ = open_lock(path_);
        const LockAttempt attempt = try_to_lock(file_, path_);
        if (attempt == LockAttempt::Gone) continue;
        if (attempt == LockAttempt::Held) {
            ::close(file_);
            throw UserError("{} is being written by another process; wait for its end, or name another place",
                            place.string());
        }
        if (attempt == LockAttempt::NoLocks) {
            spdlog::warn("{} lies on a file system without locks: nothing keeps a second writer from it",
                         place.string());
        }
        return;
    }
}

PlaceLock::~PlaceLock() {
    ::unlink(path_.c_str());  // before it is let go
    ::close(file_);
}

}  // namespace argosy::checkpoint
