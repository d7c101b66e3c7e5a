// Maps this program's element types to LibTorch's.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <utility>

#include "base/element_type.h"

namespace argosy::gpu {

inline constexpr std::pair<ElementType, at::ScalarType> kScalarTypes[] = {
    {ElementType::Float32, at::kFloat},
    {ElementType::Float64, at::kDouble},
    {ElementType::Float16, at::kHalf},
    {ElementType::BFloat16, at::kBFloat16},
    {ElementType::Int64, at::kLong},
    {ElementType::UInt8, at::kByte},
    {ElementType::Float8E4M3, at::ScalarType::Float8_e4m3fn},
    {ElementType::Float8E5M2, at::ScalarType::Float8_e5m2}};

/// Empty for a type that no tensor of this program has.
inline std::optional<at::ScalarType> scalar_type(ElementType type) {
    for (const auto& [own, torch] : kScalarTypes) {
        if (own == type) return torch;
    }
    return std::nullopt;
}

/// Empty for a type that no tensor of this program has.
inline std::optional<ElementType> element_type(at::ScalarType type) {
    for (const auto& [own, torch] : kScalarTypes) {
        if (torch == type) return own;
    }
    return std::nullopt;
}

}  // namespace argosy::gpu
