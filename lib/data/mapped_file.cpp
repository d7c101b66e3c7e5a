#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace argosy::data {

MappedFile::MappedFile(const std::filesystem::path& path, int64_t offset, int64_t num_bytes) {
    const int64_t file_bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    if (offset + num_bytes > file_bytes) {  // reading a page beyond the file's end would kill the process
        throw UserError("{} is truncated: it has {} bytes, and its tokens end at byte {}", path.string(),
                        file_bytes, offset + num_bytes);
    }
    const int64_t lead_bytes = offset % ::sysconf(_SC_PAGESIZE);
    mapped_bytes_ = lead_bytes + num_bytes;
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw UserError("cannot open {}: {}", path.string(), std::strerror(errno));
    pages_ = ::mmap(nullptr, mapped_bytes_, PROT_READ, MAP_SHARED, descriptor, offset - lead_bytes);
    const int reason = errno;
    ::close(descriptor);
    if (pages_ == MAP_FAILED)
        throw RunError("cannot map {} into memory: {}", path.string(), std::strerror(reason));
    data_ = static_cast<const std::byte*>(pages_) + lead_bytes;
}

MappedFile::~MappedFile() { ::munmap(pages_, mapped_bytes_); }

}  // namespace argosy::data
