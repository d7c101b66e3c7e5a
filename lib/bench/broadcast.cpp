// Every other rank gets the input of the root, which has it already.
#include "bench/collective.h"

namespace argosy::bench {

Collective broadcast() {
    return {
        .name = "broadcast",
        .reduces = false,
        .rooted = true,
        .chunks = one_chunk,
        .in_place = at_start,
        .input = input_of_root,
        .expected = [](const Place& place, int) -> std::optional<Part> {
            if (place.rank == place.root) return std::nullopt;
            return Part::of_rank(place.root, 0);
        },
        .run = [](Backend& backend, const Call& call) { backend.broadcast(call); },
        .bus_factor = whole_size,
    };
}

}  // namespace argosy::bench
