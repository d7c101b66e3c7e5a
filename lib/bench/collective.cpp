#include "bench/collective.h"

#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"

namespace argosy::bench {

Chunks one_chunk(int /*num_ranks*/) { return {1, 1}; }
Chunks at_start(const Place& /*place*/) { return {0, 0}; }
std::optional<Part> own_input(const Place& place, int chunk) { return Part::of_rank(place.rank, chunk); }
std::optional<Part> input_of_root(const Place& place, int chunk) {
    if (place.rank != place.root) return std::nullopt;
    return Part::of_rank(place.root, chunk);
}
double whole_size(int /*num_ranks*/) { return 1; }
double size_of_others(int num_ranks) { return (num_ranks - 1.0) / num_ranks; }

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
