#include "observe/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace argosy::observe {
namespace {

constexpr const char* kRemedy = "Set job.dump_folder to a folder that can be written";

void make_folder(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
        throw RunError("cannot make the folder '{}': {}. {}", folder.string(), error.message(), kRemedy);
    }
}

int open_to_append(const std::string& path) {
    constexpr mode_t kReadableByAll = 0644;
    make_folder(std::filesystem::path(path).parent_path());
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kReadableByAll);
    if (file < 0) throw RunError("cannot open '{}' to append: {}. {}", path, std::strerror(errno), kRemedy);
    return file;
}

/// True if the last line has no newline, as after an editor or a process that was killed while writing.
bool ends_within_a_line(int file) {
    const off_t size = lseek(file, 0, SEEK_END);
    char last = '\n';
    return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)), file_(open_to_append(path_)) {}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

AppendFile::~AppendFile() {
    if (file_ >= 0) close(file_);
}

void AppendFile::append(std::string_view bytes) {
    struct stat before {};
    fstat(file_, &before);
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t written = write(file_, bytes.data() + done, bytes.size() - done);
        if (written >= 0) {
            done += static_cast<size_t>(written);
            continue;
        }
        if (errno == EINTR) continue;
        const int reason = errno;
        const bool taken_back = done == 0 || ftruncate(file_, before.st_size) == 0;
        throw RunError("cannot write to '{}': {}{}. Free some space, or set job.dump_folder to another disk",
                       path_, std::strerror(reason), taken_back ? "" : " (its end is cut)");
    }
}

void AppendFile::append_line(const std::string& line) {
    append((ends_within_a_line(file_) ? "\n" : "") + line + "\n");
}

}  // namespace argosy::observe
