// The root gets the reduction of all inputs.
#include "bench/collective.h"

namespace argosy::bench {

Collective reduce() {
    return {
        .name = "reduce",
        .reduces = true,
        .rooted = true,
        .chunks =
            [](int) {
                return Chunks{1, 1};
            },
        .in_place =
            [](const Place&) {
                return Chunks{0, 0};
            },
        .input = [](const Place& place, int) -> std::optional<Part> { return Part::of_rank(place.rank, 0); },
        .expected = [](const Place& place, int) -> std::optional<Part> {
            if (place.rank != place.root) return std::nullopt;
            return Part::reduced(0);
        },
        .run = [](Backend& backend, const Call& call) { backend.reduce(call); },
        .bus_factor = [](int) { return 1.0; },
    };
}

}  // namespace argosy::bench
