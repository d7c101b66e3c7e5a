// Rank r gets chunk r of every rank, in the order of the ranks.
#include "bench/collective.h"

namespace argosy::bench {

Collective all_to_all() {
    return {
        .name = "alltoall",
        .reduces = false,
        .rooted = false,
        .chunks =
            [](int num_ranks) {
                return Chunks{num_ranks, num_ranks};
            },
        .in_place = at_start,
        .input = own_input,
        .expected = [](const Place& place, int chunk) -> std::optional<Part> {
            return Part::of_rank(chunk, place.rank);
        },
        .run = [](Backend& backend, const Call& call) { backend.all_to_all(call); },
        .bus_factor = size_of_others,
    };
}

}  // namespace argosy::bench
