// Errors of GPUs in the kernel's log.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

/// Out of /dev/kmsg, else the newest part of the log in /var/log; none where neither may be read.
std::vector<Xid> read_xids(const Sources& sources);

/// Of each GPU and code the last. Lines that begin as /dev/kmsg's do, "6,339,5140900,-;", have an age where
/// the time since boot is known.
std::vector<Xid> xids_in(std::string_view log, std::optional<double> uptime_seconds);

}  // namespace argosy::preflight
