// The name of this node.
#pragma once

#include <string>

namespace argosy::preflight {

/// Slurm's name of this node, so that a job can exclude the node by it; outside of a Slurm job the host name.
std::string node_name();

}  // namespace argosy::preflight
