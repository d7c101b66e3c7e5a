// The root gets the inputs of all, in their order.
#include "bench/collective.h"

namespace argosy::bench {

Collective gather() {
    return {
        .name = "gather",
        .reduces = false,
        .rooted = true,
        .chunks =
            [](int num_ranks) {
                return Chunks{1, num_ranks};
            },
        .in_place =
            [](const Place& place) {
                return Chunks{place.rank, 0};
            },
        .input = own_input,
        .expected = [](const Place& place, int chunk) -> std::optional<Part> {
            if (place.rank != place.root) return std::nullopt;
            return Part::of_rank(chunk, 0);
        },
        .run = [](Backend& backend, const Call& call) { backend.gather(call); },
        .bus_factor = size_of_others,
    };
}

}  // namespace argosy::bench
