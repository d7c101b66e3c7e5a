// Reads a node's network interfaces and its InfiniBand and RoCE adapters from /sys.
#pragma once

#include <vector>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

std::vector<Interface> read_interfaces(const Sources& sources);
std::vector<AdapterPort> read_adapter_ports(const Sources& sources);

}  // namespace argosy::preflight
