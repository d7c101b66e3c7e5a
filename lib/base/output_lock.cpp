#include "base/output_lock.h"

#include <chrono>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/raw_file.h"

namespace argosy {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenLooks{10};
constexpr int kMaxLooks = 50;  // waiting for the holder's name, which it writes right after locking

FileLock open_lock(const fs::path& place) {
    try {
        return FileLock(fs::path(place) += ".partial.lock");
    } catch (const std::system_error& error) {
        const int reason = error.code().value();
        if (*remedy_for(reason)) {
            throw RunError("cannot write {}: {}{}", place.string(), error.code().message(),
                           remedy_for(reason));
        }
        throw UserError("cannot write {}: {}", place.string(), error.code().message());
    }
}

[[noreturn]] void refuse(const fs::path& place, const FileLock& file) {
    std::string holder = file.holder();
    for (int look = 1; holder.empty() && look < kMaxLooks; ++look) {
        std::this_thread::sleep_for(kBetweenLooks);
        holder = file.holder();
    }
    throw UserError("{} is being written by another process{}; wait for its end, or name another place",
                    place.string(), holder.empty() ? "" : " (" + holder + ")");
}

FileLock take(const fs::path& place) {
    for (;;) {
        FileLock file = open_lock(place);
        switch (file.try_to_lock(this_process())) {
            case FileLock::Attempt::Gone:
                continue;
            case FileLock::Attempt::Held:
                refuse(place, file);
            case FileLock::Attempt::NoLocks:
                spdlog::warn("{} is on a file system without locks: nothing prevents a second writer",
                             place.string());
                return file;
            case FileLock::Attempt::Taken:
                return file;
        }
    }
}

}  // namespace

OutputLock::OutputLock(const fs::path& place) : file_(take(place)) {}

OutputLock::~OutputLock() { file_.remove(); }

}  // namespace argosy
