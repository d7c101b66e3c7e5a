#include "data/partial_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace argosy::data {
namespace {

namespace fs = std::filesystem;

fs::path partial_name(fs::path path) { return path += ".partial"; }

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

void sync_folder(const fs::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
    const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
    const int reason = errno;
    if (descriptor >= 0) ::close(descriptor);
    if (!synced)
        throw RunError("cannot make the folder {} durable: {}", folder.string(), std::strerror(reason));
}

}  // namespace

PartialFile::PartialFile(fs::path path) : path_(std::move(path)), partial_path_(partial_name(path_)) {
    if (fs::exists(path_) && !fs::is_regular_file(path_)) {
        throw UserError("cannot write {}: it exists and is no plain file", path_.string());
    }
    descriptor_ = ::open(partial_path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw UserError("cannot write {}: {}", path_.string(), std::strerror(errno));
}

PartialFile::~PartialFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(partial_path_.c_str());
}

void PartialFile::append(std::string_view text) {
    write_at(size_bytes_, std::as_bytes(std::span(text)));
    size_bytes_ += static_cast<int64_t>(text.size());
}

void PartialFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("write");
        bytes = bytes.subspan(done);
        offset += done;
    }
}

void PartialFile::read_at(int64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t done = ::pread(descriptor_, bytes.data(), bytes.size(), offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("read");
        if (done == 0) throw RunError("cannot read {}: it ends at byte {}", partial_path_.string(), offset);
        bytes = bytes.subspan(done);
        offset += done;
    }
}

void PartialFile::commit() {
    if (::fsync(descriptor_) != 0) fail("make durable");
    if (::rename(partial_path_.c_str(), path_.c_str()) != 0) fail("rename");
    ::close(descriptor_);
    descriptor_ = -1;
    sync_folder(folder_of(path_));
}

void PartialFile::fail(const char* action) const {
    throw RunError("cannot {} {}: {}", action, partial_path_.string(), std::strerror(errno));
}

}  // namespace argosy::data
