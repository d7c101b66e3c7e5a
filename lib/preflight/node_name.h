// What this node is called.
#pragma once

#include <string>

namespace argosy::preflight {

/// As Slurm does, so that a job can leave it out by that name; outside of jobs the host's name.
std::string node_name();

}  // namespace argosy::preflight
