#include "checkpoint/place_lock.h"

#include <system_error>

#include "base/error.h"
#include "base/log.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

RawFile take(const fs::path& place) {
    for (;;) {
        RawFile file = RawFile::create(fs::path(place) += ".partial.lock");
        switch (file.try_lock()) {
            case LockAttempt::Gone:
                continue;
            case LockAttempt::Held:
                throw UserError(
                    "{} is being written by another process; wait for its end, or name another place",
                    place.string());
            case LockAttempt::NoLocks:
                spdlog::warn("{} lies on a file system without locks: nothing keeps a second writer from it",
                             place.string());
                return file;
            case LockAttempt::Taken:
                return file;
        }
    }
}

}  // namespace

PlaceLock::PlaceLock(const fs::path& place) : file_(take(place)) {}

PlaceLock::~PlaceLock() {
    std::error_code ignored;
    fs::remove(file_.path(), ignored);  // before it is let go
}

}  // namespace argosy::checkpoint
