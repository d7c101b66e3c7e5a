#include "model/flops.h"

#include "model/attention.h"
#include "model/units.h"

namespace argosy::model {

FlopsPerToken flops_per_token(const ModelSpec& spec, int64_t sequence_length) {
    double num_multiplied = 0;
    for (const auto& unit : unit_parameters(spec)) {
        for (const Parameter& each : unit)
            num_multiplied += each.multiplied * static_cast<double>(layout::num_elements(each.spec.shape));
    }
    FlopsPerToken flops = {.causal = 6 * num_multiplied, .noncausal = 6 * num_multiplied};
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
        const auto [causal, noncausal] = attention_flops(spec, layer_spec(spec, layer), sequence_length);
        flops.causal += causal;
        flops.noncausal += noncausal;
    }
    return flops;
}

}  // namespace argosy::model
