// Facts about a node's GPUs: nvidia-smi's answers, and the errors (XIDs) in the kernel's log. If the driver
// does not know the name of a field, the query tries the field's newer name, then omits the field.
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
    std::string problem;            // one line; empty after success, and if there is no nvidia-smi
    bool hung = false;              // nvidia-smi did not end within the timeout
    bool corrupt_info_rom = false;  // of a GPU; nvidia-smi says so and prints all rows
};

/// One timeout covers all calls of nvidia-smi together.
GpuAnswer query_gpus(const Sources& sources);

/// The errors in /dev/kmsg or, if that is not readable, in the newest part of the log in /var/log. Empty if
/// neither is readable.
std::vector<Xid> read_xids(const Sources& sources);

/// The last error for each pair of GPU and code. An error has an age if its line begins like those of
/// /dev/kmsg, "6,339,5140900,-;", and the time since boot is known.
std::vector<Xid> xids_in(std::string_view log, std::optional<double> uptime_seconds);

}  // namespace argosy::preflight
