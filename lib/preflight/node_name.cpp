#include "preflight/node_name.h"

#include <unistd.h>

#include "base/environment.h"

namespace argosy::preflight {

std::string node_name() {
    const std::string name = Environment::read().slurm_node_name;
    if (!name.empty()) return name;
    char host[256] = {};
    ::gethostname(host, sizeof(host) - 1);
    return host;
}

}  // namespace argosy::preflight
