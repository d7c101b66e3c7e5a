// Every rank gets the inputs of all, in their order.
#include "bench/collective.h"

namespace argosy::bench {

Collective all_gather() {
    return {
        .name = "all_gather",
        .reduces = false,
        .rooted = false,
        .chunks =
            [](int num_ranks) {
                return Chunks{1, num_ranks};
            },
        .in_place =
            [](const Place& place) {
                return Chunks{place.rank, 0};
            },
        .input = [](const Place& place, int) -> std::optional<Part> { return Part::of_rank(place.rank, 0); },
        .expected = [](const Place&, int chunk) -> std::optional<Part> { return Part::of_rank(chunk, 0); },
        .run = [](Backend& backend, const Call& call) { backend.all_gather(call); },
        .bus_factor = [](int num_ranks) { return (num_ranks - 1.0) / num_ranks; },
    };
}

}  // namespace argosy::bench
