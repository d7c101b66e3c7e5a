#include "comm/element_type.h"

#include "base/error.h"

namespace argosy::comm {

ElementType element_type(at::ScalarType type) {
    switch (type) {
        case at::kFloat:
            return ElementType::Float32;
        case at::kDouble:
            return ElementType::Float64;
        case at::kHalf:
            return ElementType::Float16;
        case at::kBFloat16:
            return ElementType::BFloat16;
        case at::kLong:
            return ElementType::Int64;
        case at::kByte:
            return ElementType::UInt8;
        default:
            throw RunError("ranks cannot send each other elements of type {}", toString(type));
    }
}

}  // namespace argosy::comm
