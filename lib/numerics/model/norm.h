// RMSNorm with the constants of a model.
#pragma once

#include <string>
#include <utility>

#include "model/model_spec.h"
#include "model/parameter.h"
#include "ops/rms_norm.h"

namespace argosy::model {

/// The value that makes a norm multiply by one.
inline double initial_norm_weight(const ModelSpec& spec) { return spec.norms_add_one ? 0 : 1; }
inline Parameter norm_weight(const ModelSpec& spec, std::string name, int64_t size) {
    return vector(std::move(name), size, initial_norm_weight(spec));
}
inline ops::Norm norm_of(const ModelSpec& spec, const at::Tensor& weight) {
    return {weight, spec.norm_eps, /*weight_offset=*/spec.norms_add_one ? 1.0 : 0.0};
}

}  // namespace argosy::model
