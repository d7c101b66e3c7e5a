// Every rank gets the reduction of all inputs.
#include "bench/collective.h"

namespace argosy::bench {

Collective all_reduce() {
    return {
        .name = "all_reduce",
        .reduces = true,
        .rooted = false,
        .chunks = one_chunk,
        .in_place = at_start,
        .input = own_input,
        .expected = [](const Place&, int) -> std::optional<Part> { return Part::reduced(0); },
        .run = [](Backend& backend, const Call& call) { backend.all_reduce(call); },
        // A rank sends each element once for the sum and once as a result, except its own 1/n.
        .bus_factor = [](int num_ranks) { return 2.0 * (num_ranks - 1) / num_ranks; },
    };
}

}  // namespace argosy::bench
