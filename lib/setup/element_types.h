// Translates the element types of the configuration into those of the other modules and of LibTorch.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/element_type.h"
#include "config/choices.h"
#include "gpu/element_type.h"

namespace argosy::setup {

inline ElementType element_type(config::Precision precision) {
    switch (precision) {
        case config::Precision::Float16:
            return ElementType::Float16;
        case config::Precision::BFloat16:
            return ElementType::BFloat16;
        case config::Precision::Float32:
            return ElementType::Float32;
        case config::Precision::Float64:
            return ElementType::Float64;
    }
    return ElementType::Float32;
}

inline at::ScalarType scalar_type(config::Precision precision) {
    return *gpu::scalar_type(element_type(precision));
}

}  // namespace argosy::setup
