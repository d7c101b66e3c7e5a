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
        .in_place =
            [](const Place&) {
                return Chunks{0, 0};
            },
        .input = [](const Place& place, int chunk) -> std::optional<Part> {
            return Part::of_rank(place.rank, chunk);
        },
        .expected = [](const Place& place, int chunk) -> std::optional<Part> {
            return Part::of_rank(chunk, place.rank);
        },
        .run = [](Backend& backend, const Call& call) { backend.all_to_all(call); },
        .bus_factor = [](int num_ranks) { return (num_ranks - 1.0) / num_ranks; },
    };
}

}  // namespace argosy::bench
