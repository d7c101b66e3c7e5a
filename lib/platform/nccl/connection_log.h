// Finds out how NCCL connects ranks. Only NCCL's log shows it, so a ConnectionLog directs the log to memory
// of this process (memfd). Communicators write to the log while they connect; operations write nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace argosy::nccl {

/// Directs NCCL's log to memory by environment variables. REQUIRES: NCCL has not been used yet, because it
/// reads them once at its first use, and the user has not asked for a log (NCCL_DEBUG).
class ConnectionLog {
  public:
    ConnectionLog();
    ~ConnectionLog();
    ConnectionLog(const ConnectionLog&) = delete;
    ConnectionLog& operator=(const ConnectionLog&) = delete;

    /// Call this after NCCL's first use, so that child processes and reports see the original environment.
    void restore_environment();

    std::string text() const;

  private:
    int file_;
    std::vector<std::pair<std::string, std::string>> previous_;  // variables that were set before
    bool in_environment_ = false;
};

/// The kinds of connections of a communicator, each kind once, sorted: "NET/IB with GDRDMA over mlx5_0:1/IB",
/// "NVLS available", "P2P/CUMEM", "SHM/direct". `from` is the offset at which the communicator's part of
/// `log` begins. Adapters are looked up in the whole log, because NCCL names them only once.
std::vector<std::string> connections_in(std::string_view log, size_t from);

}  // namespace argosy::nccl
