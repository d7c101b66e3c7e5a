// How NCCL says that it connects ranks: it has no call for that, but a log. The log goes to memory of this
// process, and holds what communicators say while they connect; operations add nothing to it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace argosy::nccl {

/// NCCL reads once, at its first use, where its log goes. REQUIRES: that this is before, and that the user
/// wants no log of his own (NCCL_DEBUG).
class ConnectionLog {
  public:
    ConnectionLog();
    ~ConnectionLog();
    ConnectionLog(const ConnectionLog&) = delete;
    ConnectionLog& operator=(const ConnectionLog&) = delete;

    /// To be called once NCCL writes to it: children and reports see the environment as it was.
    void restore_environment();

    std::string text() const;

  private:
    int file_;
    std::vector<std::pair<std::string, std::string>> previous_;  // variables that were there
    bool in_environment_ = false;
};

/// What connects ranks, each kind once, sorted: "NET/IB with GDRDMA over mlx5_0:1/IB", "NVLS available",
/// "P2P/CUMEM", "SHM/direct". Connections are looked for in `log` from `from` on, where a communicator's
/// begins; networks in all of it, since NCCL names them once.
std::vector<std::string> connections_in(std::string_view log, size_t from);

}  // namespace argosy::nccl
