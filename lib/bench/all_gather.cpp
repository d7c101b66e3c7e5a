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
        .input = own_input,
        .expected = [](const Place&, int chunk) -> std::optional<Part> { return Part::of_rank(chunk, 0); },
        .run = [](Backend& backend, const Call& call) { backend.all_gather(call); },
        .bus_factor = size_of_others,
    };
}

}  // namespace argosy::bench
