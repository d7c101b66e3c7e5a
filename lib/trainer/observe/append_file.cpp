#include "observe/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "base/time_limit.h"

namespace argosy::observe {
namespace {

/// Advice for an errno in a folder that `setting` chooses, as the end of a message.
std::string remedy(int reason, const std::string& setting) {
    switch (reason) {
        case ENOSPC:
        case EDQUOT:
            return fmt::format(". Free some space, or set {} to a folder on another disk", setting);
        case EIO:
        case ESTALE:
            return fmt::format(". Check the disk, or set {} to a folder on another one", setting);
        case EROFS:
            return fmt::format(". Set {} to a folder on a disk that is not mounted read-only", setting);
        case EISDIR:
            return fmt::format(". Set {} to another folder, or remove the folder of this name", setting);
        case EEXIST:
        case ENOTDIR:
            return fmt::format(". Set {} to another folder, or remove the file in the folder's place",
                               setting);
        case EACCES:
        case EPERM:
            return fmt::format(
                ". Set {} to a folder that can be written, or change the mode of this one and its files",
                setting);
        case EMFILE:
        case EFBIG:
            return remedy_for(reason);
        default:
            return fmt::format(". Set {} to a folder that can be written", setting);
    }
}

Descriptor open_to_append(const std::string& path, const std::string& setting) {
    constexpr mode_t kReadableByAll = 0644;
    make_run_folder(std::filesystem::path(path).parent_path(), setting);
    Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kReadableByAll));
    if (file.number() < 0) {
        const int reason = errno;
        throw PathError(reason, "cannot open '{}' to append: {}{}", path, std::strerror(reason),
                        remedy(reason, setting));
    }
    return file;
}

/// Whether the last line lacks a newline. An editor or a process that was killed while writing leaves such a
/// line.
bool ends_within_a_line(int file) {
    const off_t size = lseek(file, 0, SEEK_END);
    char last = '\n';
    return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

void make_run_folder(const std::filesystem::path& folder, const std::string& setting) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
        throw PathError(error.value(), "cannot make the folder '{}': {}{}", folder.string(), error.message(),
                        remedy(error.value(), setting));
    }
}

AppendFile::AppendFile(std::string path, std::string setting)
    : path_(std::move(path)), setting_(std::move(setting)), file_(open_to_append(path_, setting_)) {}

bool AppendFile::renew() {
    const FileWait wait(fmt::format("opening '{}'", path_));
    if (names(path_, file_)) return false;
    file_ = open_to_append(path_, setting_);
    spdlog::error("'{}' was removed during this run, and its content is lost; the run goes on in a new file",
                  path_);
    return true;
}

void AppendFile::append(std::string_view bytes) {
    const FileWait wait(fmt::format("writing '{}'", path_));
    failpoint("line_appended");
    struct stat before {};
    fstat(file_.number(), &before);
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t written = write(file_.number(), bytes.data() + done, bytes.size() - done);
        if (written >= 0) {
            done += static_cast<size_t>(written);
            continue;
        }
        if (errno == EINTR) continue;
        const int reason = errno;
        const bool taken_back = done == 0 || ftruncate(file_.number(), before.st_size) == 0;
        throw RunError("cannot write to '{}': {}{}{}", path_, std::strerror(reason),
                       taken_back ? "" : " (the file now ends with an incomplete line)",
                       remedy(reason, setting_));
    }
}

void AppendFile::append_line(const std::string& line) {
    const FileWait wait(fmt::format("writing '{}'", path_));
    renew();
    append((ends_within_a_line(file_.number()) ? "\n" : "") + line + "\n");
}

}  // namespace argosy::observe
