// Rank r gets chunk r of the reduction of all inputs.
#include "bench/collective.h"

namespace argosy::bench {

Collective reduce_scatter() {
    return {
        .name = "reduce_scatter",
        .reduces = true,
        .rooted = false,
        .chunks =
            [](int num_ranks) {
                return Chunks{num_ranks, 1};
            },
        .in_place =
            [](const Place& place) {
                return Chunks{0, place.result_at_start ? 0 : place.rank};
            },
        .input = own_input,
        .expected = [](const Place& place, int) -> std::optional<Part> { return Part::reduced(place.rank); },
        .run = [](Backend& backend, const Call& call) { backend.reduce_scatter(call); },
        .bus_factor = size_of_others,
    };
}

}  // namespace argosy::bench
