// Ring exchange: every rank receives the input of the rank before it.
#include "bench/collective.h"

namespace argosy::bench {

Collective send_receive() {
    return {
        .name = "sendrecv",
        .reduces = false,
        .rooted = false,
        .chunks = one_chunk,
        .in_place = at_start,
        .input = own_input,
        .expected = [](const Place& place, int) -> std::optional<Part> {
            return Part::of_rank((place.rank + place.size - 1) % place.size, 0);
        },
        .run = [](Backend& backend, const Call& call) { backend.send_receive(call); },
        .bus_factor = whole_size,
    };
}

}  // namespace argosy::bench
