// Element types as memory holds them. Arithmetic is done in float; a variant's vector.h converts.
#pragma once

#include <cstdint>

namespace argosy::kernels {

struct BFloat16 {
    uint16_t bits;
};
struct Half {
    uint16_t bits;
};

}  // namespace argosy::kernels
