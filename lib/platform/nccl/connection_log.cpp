// Directs NCCL's log to a memory file, and parses its lines: "NET/IB : Using [0]mlx5_0:1/IB ..." lists a
// network's adapters, and "... via NET/IB/0/GDRDMA" names a connection.
#include "nccl/connection_log.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"

namespace argosy::nccl {
namespace {

constexpr const char* kLevel = "NCCL_DEBUG";
constexpr const char* kSubsystems = "NCCL_DEBUG_SUBSYS";
constexpr const char* kFile = "NCCL_DEBUG_FILE";

/// The rest of `line` after `mark`; empty if `line` does not contain `mark`.
std::string_view after(std::string_view line, std::string_view mark) {
    const size_t at = line.find(mark);
    return at == line.npos ? std::string_view() : line.substr(at + mark.size());
}

std::string_view until(std::string_view text, char end) { return text.substr(0, text.find(end)); }

/// "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>" -> "mlx5_0:1/IB mlx5_1:1/IB"; for sockets,
/// "[0]eth0:10.0.0.1<0>" -> "eth0".
std::string adapters_in(std::string_view list) {
    std::string names;
    list = until(list, ';');
    while (!list.empty()) {
        std::string_view word = until(list, ' ');
        list.remove_prefix(std::min(list.size(), word.size() + 1));
        word = after(word, "]");
        if (word.ends_with("<0>")) word = until(word, ':');
        if (!word.empty()) names += (names.empty() ? "" : " ") + std::string(word);
    }
    return names;
}

using Adapters = std::map<std::string, std::string, std::less<>>;  // keyed by the network's name

Adapters adapters_of_networks(std::string_view log) {
    Adapters found;
    while (!log.empty()) {
        const std::string_view line = until(log, '\n');
        log.remove_prefix(std::min(log.size(), line.size() + 1));
        const std::string_view network = until(after(line, "NCCL INFO NET/"), ' ');
        const std::string_view list = after(line, " : Using ");
        if (!network.empty() && !list.empty()) found[std::string(network)] = adapters_in(list);
    }
    return found;
}

/// Describes a connection such as "IB/0/GDRDMA/Shared", "IBext_v8/1(3)" or "Socket/0". The parts are the
/// network, the adapter's number and further properties.
std::string over_network(std::string_view connection, const Adapters& adapters) {
    const std::string_view name = until(connection, '/');
    const bool direct = connection.find("/GDRDMA") != connection.npos;
    std::string text = fmt::format("NET/{} {} GDRDMA", name, direct ? "with" : "without");
    for (const auto& [network, list] : adapters) {
        if (name.starts_with(network)) text += " over " + list;
    }
    return text;
}

/// Keeps the first two words: "P2P/CUMEM/read" and "P2P/CUMEM" are the same kind of path, and
/// "SHM/direct/direct" names the kind once for each direction.
std::string within_node(std::string_view connection) {
    const std::string_view kind = until(connection, '/');
    return fmt::format("{}/{}", kind,
                       until(connection.substr(std::min(connection.size(), kind.size() + 1)), '/'));
}

bool has_nvls_channels(std::string_view line) {
    const size_t end = line.find(" nvls channels");
    return end != line.npos && !line.substr(0, end).ends_with(" 0");
}

}  // namespace

ConnectionLog::ConnectionLog() : file_(memfd_create("nccl-log", MFD_CLOEXEC)) {
    if (file_ < 0) throw RunError("memfd_create failed: {}", std::strerror(errno));
    const std::string path = fmt::format("/proc/self/fd/{}", file_);
    const std::array<std::pair<const char*, const char*>, 3> ours = {
        {{kLevel, "INFO"}, {kSubsystems, "INIT"}, {kFile, path.c_str()}}};
    for (const auto& [name, value] : ours) {
        if (const char* previous = std::getenv(name)) previous_.emplace_back(name, previous);
        setenv(name, value, /*overwrite=*/1);
    }
    in_environment_ = true;
}

ConnectionLog::~ConnectionLog() {
    restore_environment();
    close(file_);
}

void ConnectionLog::restore_environment() {
    if (!in_environment_) return;
    in_environment_ = false;
    for (const char* name : {kLevel, kSubsystems, kFile}) unsetenv(name);
    for (const auto& [name, value] : previous_) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
}

std::string ConnectionLog::text() const {
    constexpr size_t kBlockBytes = 64 << 10;
    std::string text;
    for (;;) {
        const size_t begun = text.size();
        text.resize(begun + kBlockBytes);
        const ssize_t got = pread(file_, &text[begun], kBlockBytes, static_cast<off_t>(begun));
        text.resize(begun + static_cast<size_t>(std::max<ssize_t>(got, 0)));
        if (got <= 0) return text;
    }
}

std::vector<std::string> connections_in(std::string_view log, size_t from) {
    const Adapters adapters = adapters_of_networks(log);
    std::set<std::string> found;
    log.remove_prefix(std::min(from, log.size()));
    while (!log.empty()) {
        const std::string_view line = until(log, '\n');
        log.remove_prefix(std::min(log.size(), line.size() + 1));
        const std::string_view connection = after(line, " via ");
        if (connection.starts_with("NET/")) {
            found.insert(over_network(connection.substr(4), adapters));
        } else if (connection.starts_with("COLLNET/")) {
            found.insert(fmt::format("COLLNET/{}", until(connection.substr(8), '/')));
        } else if (connection.starts_with("P2P/") || connection.starts_with("SHM/")) {
            found.insert(within_node(connection));
        } else if (has_nvls_channels(line)) {
            found.insert("NVLS available");
        }
    }
    return {found.begin(), found.end()};
}

}  // namespace argosy::nccl
