// The root gets the reduction of all inputs.
#include "bench/collective.h"

namespace argosy::bench {

Collective reduce() {
    return {
        .name = "reduce",
        .reduces = true,
        .rooted = true,
        .chunks = one_chunk,
        .in_place = at_start,
        .input = own_input,
        .expected = [](const Place& place, int) -> std::optional<Part> {
            if (place.rank != place.root) return std::nullopt;
            return Part::reduced(0);
        },
        .run = [](Backend& backend, const Call& call) { backend.reduce(call); },
        .bus_factor = whole_size,
    };
}

}  // namespace argosy::bench
