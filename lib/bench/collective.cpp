#include "bench/collective.h"

#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"

namespace argosy::bench {

std::span<const Collective> collectives() {
    static const Collective table[] = {
        all_reduce(), all_gather(),   reduce_scatter(), broadcast(), reduce(),
        all_to_all(), send_receive(), scatter(),        gather(),
    };
    return table;
}

const Collective& collective_named(const std::string& name) {
    std::vector<const char*> names;
    for (const Collective& one : collectives()) {
        if (name == one.name) return one;
        names.push_back(one.name);
    }
    throw UserError("no collective is called '{}'; there are {}", name, fmt::join(names, ", "));
}

}  // namespace argosy::bench
