#include "checkpoint/place_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
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

/// Its holder took the file away before it let it go, and who comes next makes a new one.
bool is_gone(int file, const fs::path& path) {
    struct stat held = {}, named = {};
    return ::stat(path.c_str(), &named) != 0 || ::fstat(file, &held) != 0 || held.st_ino != named.st_ino;
}

}  // namespace

PlaceLock::PlaceLock(const fs::path& place) : path_(fs::path(place) += ".partial.lock") {
    for (;; ::close(file_)) {
        file_ = open_lock(path_);
        const int reason = ::flock(file_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (reason == 0 && is_gone(file_, path_)) continue;
        if (reason == 0) return;
        if (reason == EWOULDBLOCK) {
            ::close(file_);
            throw UserError("{} is being written by another process; wait for its end, or name another place",
                            place.string());
        }
        spdlog::warn("{} lies on a file system without locks ({}): nothing keeps a second writer from it",
                     place.string(), std::strerror(reason));
        return;
    }
}

PlaceLock::~PlaceLock() {
    ::unlink(path_.c_str());  // before it is let go
    ::close(file_);
}

}  // namespace argosy::checkpoint
