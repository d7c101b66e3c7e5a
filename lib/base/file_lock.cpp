#include "base/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace argosy {
namespace {

bool is_gone(int file, const std::filesystem::path& path) {
    struct stat held = {}, named = {};
    return stat(path.c_str(), &named) != 0 || fstat(file, &held) != 0 || held.st_ino != named.st_ino;
}

}  // namespace

LockAttempt try_to_lock(int file, const std::filesystem::path& path) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
        return is_gone(file, path) ? LockAttempt::Gone : LockAttempt::Taken;
    return errno == EWOULDBLOCK || errno == EINTR ? LockAttempt::Held : LockAttempt::NoLocks;
}

}  // namespace argosy
