#include "base/raw_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace argosy {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPermissions = 0666;  // minus the umask

/// Maximum bytes of one call of the system, so that the bytes moved are counted while a slow disk works.
constexpr size_t kMaxPieceBytes = 64 << 20;

std::atomic<int64_t> bytes_moved = 0;

/// The bytes that a user without privileges may still write.
int64_t free_bytes(const struct statvfs& space) {
    return static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

Descriptor::~Descriptor() {
    if (number_ >= 0) ::close(number_);
}

bool names(const fs::path& path, const Descriptor& descriptor) {
    struct stat opened = {}, named = {};
    if (::stat(path.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
    return ::fstat(descriptor.number(), &opened) != 0 ||
           (opened.st_ino == named.st_ino && opened.st_dev == named.st_dev);
}

RawFile::RawFile(fs::path path, int flags) : path_(std::move(path)) {
    do {
        descriptor_ = Descriptor(::open(path_.c_str(), flags | O_CLOEXEC, kPermissions));
    } while (descriptor_.number() < 0 && errno == EINTR);
    const bool writes = flags != O_RDONLY;
    if (descriptor_.number() < 0) {
        const int reason = errno;
        if (reason == EIO || *remedy_for(reason)) fail("open");
        throw UserError("cannot {} {}: {}", writes ? "write" : "open", path_.string(), std::strerror(reason));
    }
}

RawFile RawFile::open_to_read(const fs::path& path) {
    std::error_code ignored;  // if the status cannot be read, opening fails too and reports why
    const fs::file_status status = fs::status(path, ignored);
    if (fs::is_directory(status)) throw UserError("cannot read {}: it is a folder", path.string());
    // A pipe is refused before it is opened, because opening it would wait for a writer.
    if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_block_file(status)) {
        throw UserError("cannot read {}: it is not a regular file", path.string());
    }
    return RawFile(path, O_RDONLY);
}
RawFile RawFile::create(const fs::path& path) { return RawFile(path, O_RDWR | O_CREAT | O_TRUNC); }
RawFile RawFile::open_to_write(const fs::path& path) { return RawFile(path, O_RDWR); }

RawFile RawFile::create_nameless(const fs::path& path) {
    RawFile file = create(path);
    if (::unlink(path.c_str()) != 0) file.fail("remove the name of");
    return file;
}

int64_t RawFile::num_bytes_moved() { return bytes_moved; }
void RawFile::count_progress() { ++bytes_moved; }

int64_t RawFile::size_bytes() const {
    struct stat status = {};
    if (::fstat(descriptor_.number(), &status) != 0) fail("read the size of");
    return status.st_size;
}

void RawFile::read_at(int64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t done =
            ::pread(descriptor_.number(), bytes.data(), std::min(bytes.size(), kMaxPieceBytes), offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("read");
        if (done == 0) {
            throw DamageError(
                "{} is truncated: it has {} bytes, but byte {} was to be read. Copy or make it again",
                path_.string(), size_bytes(), offset + static_cast<int64_t>(bytes.size()) - 1);
        }
        bytes = bytes.subspan(done);
        offset += done;
        bytes_moved += done;
    }
}

void RawFile::write_at(int64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t done =
            ::pwrite(descriptor_.number(), bytes.data(), std::min(bytes.size(), kMaxPieceBytes), offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail_to_write(offset, bytes.size());
        bytes = bytes.subspan(done);
        offset += done;
        bytes_moved += done;
    }
}

void RawFile::sync() const {
    constexpr unsigned kWriteAndWait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    constexpr int64_t kPiece = kMaxPieceBytes;
    const int64_t size = size_bytes();
    for (int64_t offset = 0; size > kPiece && offset < size; offset += kPiece) {
        // The call takes a disk's error from the descriptor, so that fsync() would not report the error. Some
        // file systems do not have the call.
        const bool failed = ::sync_file_range(descriptor_.number(), offset, kPiece, kWriteAndWait) != 0;
        if (failed && errno != ENOSYS && errno != EINVAL && errno != ESPIPE && errno != EOPNOTSUPP)
            fail("sync");
        bytes_moved += kPiece;
    }
    if (::fsync(descriptor_.number()) != 0) fail("sync");
}

/// The call is only a hint to the kernel: errors are ignored, and a range below kWorthwhileBytes is skipped.
void RawFile::begin_sync(int64_t offset, int64_t num_bytes) const {
    constexpr int64_t kWorthwhileBytes = 1 << 20;
    if (num_bytes < kWorthwhileBytes) return;
    ::sync_file_range(descriptor_.number(), offset, num_bytes, SYNC_FILE_RANGE_WRITE);
}

void RawFile::fail(const char* action) const {
    const int reason = errno;
    throw RunError("cannot {} {}: {}{}", action, path_.string(), std::strerror(reason), remedy_for(reason));
}

std::string read_text(const fs::path& path, int64_t max_bytes) {
    const RawFile file = RawFile::open_to_read(path);
    const int64_t num_bytes = file.size_bytes();
    if (num_bytes > max_bytes) {
        throw UserError("{} has {} bytes; at most {} are expected", path.string(), num_bytes, max_bytes);
    }
    std::string text(num_bytes, '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    return text;
}

void make_folders(const fs::path& folder) {
    std::error_code error;
    if (folder.empty() || fs::is_directory(folder, error)) return;
    make_folders(folder.parent_path());
    fs::create_directory(folder, error);
    if (error == std::errc::no_space_on_device) {
        throw RunError("cannot make the folder {}: {}", folder.string(), error.message());
    }
    if (error == std::errc::file_exists) throw UserError("{} is not a folder", folder.string());
    if (error) throw UserError("cannot make the folder {}: {}", folder.string(), error.message());
    sync_folder(folder_of(folder));
}

void write_text(const fs::path& path, const std::string& text) {
    const RawFile file = RawFile::create(path);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
}

void RawFile::fail_to_write(int64_t offset, size_t num_bytes) const {
    const int reason = errno;
    struct statvfs space = {};
    if (reason != ENOSPC || ::fstatvfs(descriptor_.number(), &space) != 0) {
        errno = reason;
        fail("write");
    }
    throw RunError("cannot write {}: {}{} ({} bytes were to be written at byte {}, and {} are free)",
                   path_.string(), std::strerror(reason), remedy_for(reason), num_bytes, offset,
                   free_bytes(space));
}

void require_space(const fs::path& folder, int64_t num_bytes, const std::string& what) {
    struct statvfs space = {};
    if (::statvfs(folder.c_str(), &space) != 0 || free_bytes(space) >= num_bytes) return;
    throw RunError("{} needs {} bytes, and the file system of {} has {} free{}", what, num_bytes,
                   folder.string(), free_bytes(space), remedy_for(ENOSPC));
}

void sync_folder(const fs::path& folder) {
    const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.number() >= 0 && ::fsync(opened.number()) == 0) return;
    const int reason = errno;
    throw RunError("cannot sync the folder {}: {}{}", folder.string(), std::strerror(reason),
                   remedy_for(reason));
}

const char* remedy_for(int reason) {
    switch (reason) {
        case ENOSPC:
            return "; make room on that file system, or write elsewhere";
        case EDQUOT:
            return "; the quota is used up: remove files, or write elsewhere";
        case EMFILE:
            return "; the limit on open files is reached (ulimit -n)";
        case EFBIG:
            return "; the limit on a file's size is reached (ulimit -f)";
        default:
            return "";
    }
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

}  // namespace argosy
