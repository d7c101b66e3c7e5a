// Collects the facts of this rank (variables, executable, limits, CPUs, and the GPUs that CUDA shows it), and
// of a folder that ranks write to.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>

#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/program.h"
#include "base/time_limit.h"
#include "cuda/device.h"
#include "mpi/agreement.h"
#include "nccl/device_id.h"
#include "preflight/read_facts.h"

namespace argosy::preflight {
namespace {

namespace fs = std::filesystem;

/// Adds the "NCCL_NAME=value" lines of a file of NCCL's settings. A variable that is set already keeps its
/// value.
void add_settings(const fs::path& file, std::vector<Variable>& variables) {
    const std::string text = try_read_text(file).value_or("");
    for (const std::string_view line : split(text, '\n')) {
        const size_t end = line.find('=');
        if (line.starts_with('#') || !line.starts_with("NCCL_") || end == line.npos) continue;
        const std::string name = printable(trimmed(line.substr(0, end)));
        if (std::ranges::find(variables, name, &Variable::name) != variables.end()) continue;
        variables.push_back({name, printable(trimmed(line.substr(end + 1))), file.string()});
    }
}

/// The variables from three sources, in the order in which NCCL reads them: the environment; the file that
/// NCCL_CONF_FILE names, else ~/.nccl.conf; the node's /etc/nccl.conf.
std::vector<Variable> read_variables(const Sources& sources) {
    std::vector<Variable> variables;
    for (const auto& [name, value] : communication_variables()) variables.push_back({name, printable(value)});
    const auto named = std::ranges::find(variables, "NCCL_CONF_FILE", &Variable::name);
    const fs::path user_file =
        named == variables.end() ? fs::path(Environment::read().home) / ".nccl.conf" : fs::path(named->value);
    add_settings(sources.root / user_file.relative_path(), variables);
    add_settings(sources.root / "etc/nccl.conf", variables);
    return variables;
}

int64_t locked_memory_limit() {
    rlimit limit = {};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
    return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited));
}

/// The value of "Cpus_allowed_list:" in /proc/self/status.
std::string allowed_cpus(const Sources& sources) {
    const std::string status = try_read_text(sources.root / "proc/self/status").value_or("");
    constexpr std::string_view kKey = "Cpus_allowed_list:";
    for (const std::string_view line : split(status, '\n')) {
        if (line.starts_with(kKey)) return printable(trimmed(line.substr(kKey.size())));
    }
    return "";
}

constexpr size_t kPartBytes = 16 << 20;
constexpr size_t kParts = 4;
constexpr double kMaxSeconds = 3;

/// A file without a name.
class TrialFile {
  public:
    explicit TrialFile(const fs::path& folder) {
        std::string path = (folder / ".preflight-XXXXXX").string();
        descriptor_ = ::mkstemp(path.data());
        if (descriptor_ < 0) fail("create a file");
        ::unlink(path.c_str());  // a write that hangs would leave the file behind
    }
    ~TrialFile() { ::close(descriptor_); }
    TrialFile(const TrialFile&) = delete;
    TrialFile& operator=(const TrialFile&) = delete;

    void append(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
            if (written < 0 && errno != EINTR) fail("write");
            if (written > 0) bytes.remove_prefix(written);
        }
        if (::fsync(descriptor_) != 0) fail("flush a file to disk");
    }

  private:
    [[noreturn]] static void fail(const char* action) {
        throw RunError("cannot {} there: {}", action, std::strerror(errno));
    }

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

fs::path nearest_folder(fs::path path) {
    std::error_code ignored;
    path = fs::absolute(path, ignored);
    while (!fs::is_directory(path, ignored) && path.has_relative_path()) path = path.parent_path();
    return path;
}

/// Writes a file to the folder, for kMaxSeconds at most. Calls part_done() after each part.
FolderFacts write_trial(const fs::path& folder, const std::function<void()>& part_done) {
    const fs::path place = nearest_folder(folder);
    FolderFacts facts{.path = place.string(), .space = space_of(place).value_or(Space{})};
    try {
        const TrialFile file(place);
        const std::string bytes = random_bytes(kPartBytes);
        const double start = seconds_now();
        double seconds = 0;
        for (size_t part = 1; part <= kParts && seconds < kMaxSeconds; ++part) {
            file.append(bytes);
            seconds = seconds_now() - start;
            facts.bytes_per_second = static_cast<double>(part * kPartBytes) / seconds;
            part_done();
        }
    } catch (const RunError& error) {
        facts.problem = error.what();
    }
    return facts;
}

}  // namespace

RankFacts read_rank_facts(const Sources& sources, int rank, const LibraryVersions& versions) {
    RankFacts facts{.rank = rank,
                    .node = Environment::read().node_name(),
                    .variables = read_variables(sources),
                    .executable_hash = mpi::digest_of_file(sources.root / "proc/self/exe"),
                    .argosy_version = version(),
                    .mpi_library = printable(versions.mpi_library),
                    .cuda_version = versions.cuda_version,
                    .nccl_version = versions.nccl_version,
                    .memlock_bytes = locked_memory_limit(),
                    .cpus = allowed_cpus(sources)};
    facts.num_cpus = static_cast<int>(parse_cpu_list(facts.cpus).size());
    return facts;
}

VisibleGpus look_at_visible_gpus(int number_on_node) {
    VisibleGpus seen{.requested = printable(Environment::read().requested_gpus)};
    try {
        seen.count = cuda::device_count();
        if (seen.count == 0) return seen;
        const int own = number_on_node % seen.count;
        const nccl::DeviceId id = nccl::device_id(own);
        seen.own = id.pci_bus_id;
        seen.host = printable(id.node);
        cuda::set_device(own);  // makes a context
    } catch (const RunError& error) {
        seen.problem = printable(error.what());
    }
    return seen;
}

std::optional<Space> space_of(const fs::path& folder) {
    struct statvfs space = {};
    if (::statvfs(folder.c_str(), &space) != 0) return std::nullopt;
    const auto unit = static_cast<int64_t>(space.f_frsize);
    return Space{static_cast<int64_t>(space.f_blocks) * unit, static_cast<int64_t>(space.f_bavail) * unit};
}

FolderFacts try_folder(const fs::path& folder, double max_seconds) {
    const TimeLimit limit{.part_seconds = max_seconds * 2 / 3, .all_seconds = max_seconds};
    const auto facts = std::make_shared<FolderFacts>();
    const auto num_parts = parts_within(
        limit, [folder, facts](const auto& part_done) { *facts = write_trial(folder, part_done); });
    if (!num_parts) return *facts;
    return {.path = folder.string(),
            .problem = fmt::format("a trial file of {} MiB was not written within {} s, only {} MiB",
                                   kParts * kPartBytes >> 20, max_seconds, *num_parts * kPartBytes >> 20)};
}

}  // namespace argosy::preflight
