// Every other rank gets the input of the root, which has it already.
#include "bench/collective.h"

namespace argosy::bench {

Collective broadcast() {
    return {
        .name = "broadcast",
        .reduces = false,
        .rooted = true,
        .chunks =
            [](int) {
                return Chunks{1, 1};
            },
        .in_place =
            [](const Place&) {
                return Chunks{0, 0};
            },
        .input = [](const Place& place, int) -> std::optional<Part> {
            if (place.rank != place.root) return std::nullopt;
            return Part::of_rank(place.root, 0);
        },
        .expected = [](const Place& place, int) -> std::optional<Part> {
            if (place.rank == place.root) return std::nullopt;
            return Part::of_rank(place.root, 0);
        },
        .run = [](Backend& backend, const Call& call) { backend.broadcast(call); },
        .bus_factor = [](int) { return 1.0; },
    };
}

}  // namespace argosy::bench
