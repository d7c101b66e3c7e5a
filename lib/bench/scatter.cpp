// Rank r gets chunk r of the input of the root.
#include "bench/collective.h"

namespace argosy::bench {

Collective scatter() {
    return {
        .name = "scatter",
        .reduces = false,
        .rooted = true,
        .chunks =
            [](int num_ranks) {
                return Chunks{num_ranks, 1};
            },
        .in_place =
            [](const Place& place) {
                return Chunks{0, place.rank};
            },
        .input = input_of_root,
        .expected = [](const Place& place, int) -> std::optional<Part> {
            return Part::of_rank(place.root, place.rank);
        },
        .run = [](Backend& backend, const Call& call) { backend.scatter(call); },
        .bus_factor = size_of_others,
    };
}

}  // namespace argosy::bench
