// Finds out how NCCL connects ranks. NCCL reports this only in its log, so the log goes to memory of this
// process (memfd). Communicators write to the log while they connect; operations write nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace argosy::nccl {

/// NCCL reads the log's destination once, at its first use. REQUIRES: made before that, and the user has not
/// asked for a log (NCCL_DEBUG).
class ConnectionLog {
  public:
    ConnectionLog();
    ~ConnectionLog();
    ConnectionLog(const ConnectionLog&) = delete;
    ConnectionLog& operator=(const ConnectionLog&) = delete;

    /// Call this once NCCL writes to the log, so that child processes and reports see the original
    /// environment.
    void restore_environment();

    std::string text() const;

  private:
    int file_;
    std::vector<std::pair<std::string, std::string>> previous_;  // variables that were set before
    bool in_environment_ = false;
};

/// The kinds of connections between ranks, each kind once, sorted: "NET/IB with GDRDMA over mlx5_0:1/IB",
/// "NVLS available", "P2P/CUMEM", "SHM/direct". Reads connections in `log` from offset `from` on, where a
/// communicator's part begins, and networks in all of `log`, because NCCL names them only once.
std::vector<std::string> connections_in(std::string_view log, size_t from);

}  // namespace argosy::nccl
