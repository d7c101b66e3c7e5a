#include "base/partial_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace argosy {

namespace fs = std::filesystem;

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

void require_replaceable(const fs::path& path, const IsOwn& is_own) {
    if (!path.has_filename()) throw UserError("cannot write '{}': the path has no file name", path.string());
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (!fs::exists(status)) return;  // if the status is unknown, opening the file reports why
    if (!fs::is_regular_file(status)) {
        throw UserError("cannot write {}: it exists and is no plain file", path.string());
    }
    if (fs::is_empty(path, failed) || is_own(path)) return;
    throw UserError(
        "cannot write {}: it exists, and this tool did not write it (or an older version did), so it is not "
        "replaced; move it elsewhere or choose another path",
        path.string());
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

}  // namespace argosy
