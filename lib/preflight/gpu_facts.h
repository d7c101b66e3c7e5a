// Facts about a node's GPUs: what nvidia-smi tells, and the errors (XIDs) in the kernel's log. The query uses
// field names that old and new drivers know; one timeout covers all calls of nvidia-smi together.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

struct GpuAnswer {
    std::vector<Gpu> gpus;
    std::string problem;  // one line; empty after success, and if there is no nvidia-smi
    bool hung = false;    // nvidia-smi did not end within the timeout
};

GpuAnswer query_gpus(const Sources& sources);

/// Reads /dev/kmsg, or else the newest part of the log in /var/log. Empty if neither is readable.
std::vector<Xid> read_xids(const Sources& sources);

/// The last error of each GPU and code. Errors in lines that begin like those of /dev/kmsg,
/// "6,339,5140900,-;", get an age if the time since boot is known.
std::vector<Xid> xids_in(std::string_view log, std::optional<double> uptime_seconds);

}  // namespace argosy::preflight
