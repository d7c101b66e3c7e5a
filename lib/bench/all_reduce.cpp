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
        // Each element leaves a rank once on its way to be added up and once as a result, but for one part.
        .bus_factor = [](int num_ranks) { return 2.0 * (num_ranks - 1) / num_ranks; },
    };
}

}  // namespace argosy::bench
