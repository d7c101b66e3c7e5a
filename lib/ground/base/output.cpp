#include "base/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/raw_file.h"

namespace argosy {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenReads{10};
constexpr int kMaxReads = 50;  // for the holder's name, which the holder writes right after locking

FileLock open_lock(const fs::path& place) {
    try {
        return FileLock(fs::path(place) += ".partial.lock");
    } catch (const std::system_error& error) {
        const int reason = error.code().value();
        if (*remedy_for(reason)) {
            throw RunError("cannot write {}: {}{}", place.string(), error.code().message(),
                           remedy_for(reason));
        }
        std::error_code ignored;
        if (const fs::path folder = folder_of(place); !fs::exists(folder, ignored) && reason == ENOENT) {
            throw UserError("cannot write {}: the folder {} does not exist; make it first", place.string(),
                            folder.string());
        }
        throw UserError("cannot write {}: {}", place.string(), error.code().message());
    }
}

[[noreturn]] void refuse(const fs::path& place, const FileLock& file) {
    std::string holder = file.holder();
    for (int num_reads = 1; holder.empty() && num_reads < kMaxReads; ++num_reads) {
        std::this_thread::sleep_for(kBetweenReads);
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

/// UserError if `path` cannot be written or must not be replaced: a folder, a device, a symbolic link, or a
/// file that is neither empty nor `is_own`.
void require_replaceable(const fs::path& path, const IsOwn& is_own) {
    if (!path.has_filename()) throw UserError("cannot write '{}': the path has no file name", path.string());
    std::error_code failed;
    if (fs::is_symlink(path, failed)) {
        throw UserError(
            "cannot write {}: it is a symbolic link, which is not replaced; name the path that it leads to{}",
            path.string(), path.parent_path() == "/dev" ? ", or - for standard output" : "");
    }
    const fs::file_status status = fs::status(path, failed);
    if (!fs::exists(status)) return;  // if the status is unknown, opening the file reports why
    if (!fs::is_regular_file(status)) {
        throw UserError("cannot write {}: it exists and is not a regular file", path.string());
    }
    if (fs::is_empty(path, failed) || is_own(path)) return;
    throw UserError(
        "cannot write {}: it exists, and this tool did not write it (or an older version did), so it is not "
        "replaced; move it elsewhere or choose another path",
        path.string());
}

}  // namespace

FileLock::FileLock(std::filesystem::path path) : path_(std::move(path)) {
    constexpr mode_t kReadableByAll = 0644;
    descriptor_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kReadableByAll));
    if (descriptor_.number() < 0) throw std::system_error(errno, std::generic_category(), path_.string());
}

FileLock::Attempt FileLock::try_to_lock(std::string_view holder) {
    if (::flock(descriptor_.number(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK || errno == EINTR) return Attempt::Held;
        write_holder(holder);
        return Attempt::NoLocks;
    }
    if (is_gone()) return Attempt::Gone;
    write_holder(holder);
    return Attempt::Taken;
}

std::string FileLock::holder() const {
    char text[512] = {};
    const ssize_t size = ::pread(descriptor_.number(), text, sizeof text, 0);
    return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

void FileLock::remove() const noexcept { ::unlink(path_.c_str()); }

void FileLock::write_holder(std::string_view holder) const {
    const bool written = ::ftruncate(descriptor_.number(), 0) == 0 &&
                         ::pwrite(descriptor_.number(), holder.data(), holder.size(), 0) ==
                             static_cast<ssize_t>(holder.size());
    if (!written)
        spdlog::warn("cannot write the holder's name into {}: {}", path_.string(), std::strerror(errno));
}

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = {};
    ::gethostname(name, HOST_NAME_MAX);
    return name;
}

std::string this_process() { return fmt::format("process {} on {}", ::getpid(), host_name()); }

OutputLock::OutputLock(const fs::path& place) : file_(take(place)) {}

OutputLock::~OutputLock() { file_.remove(); }

std::string first_bytes(const fs::path& path, size_t count) {
    if (!fs::is_regular_file(path)) return "";
    std::string start(count, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(start.data(), std::ssize(start));
    start.resize(file.gcount());
    return start;
}

IsOwn begins_with(std::string mark) {
    return [mark = std::move(mark)](const fs::path& path) { return first_bytes(path, mark.size()) == mark; };
}

IsOwn is_json_of_format(const std::string& format) {
    return begins_with("{\n  \"format\": \"" + format + "\",\n");
}

bool is_standard_stream(const fs::path& path) { return path == "-"; }

void print_text(const std::string& text, std::FILE* stream) {
    if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0)
        throw RunError("cannot write to {}", stream == stdout ? "stdout" : "stderr");
}

PartialFile::PartialFile(fs::path path, IsOwn is_own) : path_(std::move(path)), is_own_(std::move(is_own)) {
    require_replaceable(path_, is_own_);
    lock_.emplace(path_);
    file_.emplace(RawFile::create(fs::path(path_) += ".partial"));
}

PartialFile::~PartialFile() {
    if (!committed_) std::remove(partial_path().c_str());
}

void PartialFile::append(std::string_view text) {
    file_->write_at(size_bytes_, std::as_bytes(std::span(text)));
    size_bytes_ += static_cast<int64_t>(text.size());
}

void PartialFile::commit() {
    file_->sync();
    require_replaceable(path_, is_own_);
    if (std::rename(partial_path().c_str(), path_.c_str()) != 0) {
        throw RunError("cannot rename {}: {}", partial_path().string(), std::strerror(errno));
    }
    committed_ = true;
    sync_folder(folder_of(path_));
}

ResultFile::ResultFile(const fs::path& path, IsOwn is_own) {
    if (!is_standard_stream(path)) file_.emplace(path, std::move(is_own));
}

void ResultFile::write(const std::string& text) {
    if (!file_) return print_text(text, stdout);
    file_->append(text);
    file_->commit();
}

}  // namespace argosy
