#include "preflight/write_speed.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"

namespace argosy::preflight {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPartBytes = 16 << 20;
constexpr int kParts = 4;
constexpr double kMaxSeconds = 3;

/// A file with a unique name, which is removed at the end of its scope.
class TrialFile {
  public:
    explicit TrialFile(const fs::path& folder) : path_((folder / ".preflight-XXXXXX").string()) {
        descriptor_ = ::mkstemp(path_.data());
        if (descriptor_ < 0) fail("make a file");
    }
    ~TrialFile() {
        ::close(descriptor_);
        ::unlink(path_.c_str());
    }
    TrialFile(const TrialFile&) = delete;
    TrialFile& operator=(const TrialFile&) = delete;

    void append(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
            if (written < 0 && errno != EINTR) fail("write");
            if (written > 0) bytes.remove_prefix(written);
        }
        if (::fsync(descriptor_) != 0) fail("make durable what is written");
    }

  private:
    [[noreturn]] static void fail(const char* action) {
        throw RunError("cannot {} there: {}", action, std::strerror(errno));
    }

    std::string path_;
    int descriptor_ = -1;
};

/// Random bytes, which no file system can compress.
std::string random_bytes(size_t count) {
    std::mt19937_64 random;
    std::string bytes(count, '\0');
    for (size_t at = 0; at + sizeof(uint64_t) <= count; at += sizeof(uint64_t)) {
        const uint64_t word = random();
        std::memcpy(bytes.data() + at, &word, sizeof(word));
    }
    return bytes;
}

fs::path existing_part(fs::path path) {
    std::error_code ignored;
    path = fs::absolute(path, ignored);
    while (!fs::is_directory(path, ignored) && path.has_relative_path()) path = path.parent_path();
    return path;
}

}  // namespace

std::optional<Space> space_of(const fs::path& folder) {
    struct statvfs space = {};
    if (::statvfs(folder.c_str(), &space) != 0) return std::nullopt;
    const auto unit = static_cast<int64_t>(space.f_frsize);
    return Space{static_cast<int64_t>(space.f_blocks) * unit, static_cast<int64_t>(space.f_bavail) * unit};
}

FolderFacts try_folder(const fs::path& folder) {
    const fs::path place = existing_part(folder);
    FolderFacts facts{.path = place.string(), .space = space_of(place).value_or(Space{})};
    try {
        const TrialFile file(place);
        const std::string bytes = random_bytes(kPartBytes);
        const double start = seconds_now();
        double seconds = 0;
        for (int part = 1; part <= kParts && seconds < kMaxSeconds; ++part) {
            file.append(bytes);
            seconds = seconds_now() - start;
            facts.bytes_per_second = static_cast<double>(part * kPartBytes) / seconds;
        }
    } catch (const RunError& error) {
        facts.problem = error.what();
    }
    return facts;
}

}  // namespace argosy::preflight
