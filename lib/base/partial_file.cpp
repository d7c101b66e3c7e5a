#include "base/partial_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace argosy {
namespace {

namespace fs = std::filesystem;

fs::path partial_name(fs::path path) { return path += ".partial"; }

RawFile create_partial(const fs::path& path) {
    if (!path.has_filename()) throw UserError("cannot write '{}': it names no file", path.string());
    if (fs::exists(path) && !fs::is_regular_file(path)) {
        throw UserError("cannot write {}: it exists and is no plain file", path.string());
    }
    return RawFile::create(partial_name(path));
}

}  // namespace

PartialFile::PartialFile(fs::path path) : path_(std::move(path)), file_(create_partial(path_)) {}

PartialFile::~PartialFile() {
    if (!committed_) std::remove(partial_path().c_str());
}

void PartialFile::append(std::string_view text) {
    file_.write_at(size_bytes_, std::as_bytes(std::span(text)));
    size_bytes_ += static_cast<int64_t>(text.size());
}

void PartialFile::commit() {
    file_.sync();
    if (std::rename(partial_path().c_str(), path_.c_str()) != 0) {
        throw RunError("cannot rename {}: {}", partial_path().string(), std::strerror(errno));
    }
    committed_ = true;
    sync_folder(folder_of(path_));
}

}  // namespace argosy
