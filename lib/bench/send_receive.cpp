// In a ring, every rank gets the input of the one before it.
#include "bench/collective.h"

namespace argosy::bench {

Collective send_receive() {
    return {
        .name = "sendrecv",
        .reduces = false,
        .rooted = false,
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
            return Part::of_rank((place.rank + place.size - 1) % place.size, 0);
        },
        .run = [](Backend& backend, const Call& call) { backend.send_receive(call); },
        .bus_factor = [](int) { return 1.0; },
    };
}

}  // namespace argosy::bench
