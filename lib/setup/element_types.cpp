#include "setup/element_types.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace argosy::setup {
namespace {

using h5::ElementType;

constexpr std::array<std::pair<at::ScalarType, ElementType>, 4> kTypes = {{{at::kDouble, ElementType::F64},
                                                                           {at::kFloat, ElementType::F32},
                                                                           {at::kBFloat16, ElementType::BF16},
                                                                           {at::kHalf, ElementType::F16}}};

}  // namespace

at::ScalarType scalar_type(config::Precision precision) {
    switch (precision) {
        case config::Precision::Float16:
            return at::kHalf;
        case config::Precision::BFloat16:
            return at::kBFloat16;
        case config::Precision::Float32:
            return at::kFloat;
        case config::Precision::Float64:
            return at::kDouble;
    }
    return at::kFloat;
}

ElementType element_type(at::ScalarType type) {
    const auto* found = std::ranges::find(kTypes, type, [](const auto& pair) { return pair.first; });
    ARGOSY_CHECK(found != kTypes.end(), "{} is no type of weights", toString(type));
    return found->second;
}

std::optional<at::ScalarType> scalar_type(ElementType type) {
    const auto* found = std::ranges::find(kTypes, type, [](const auto& pair) { return pair.second; });
    if (found == kTypes.end()) return std::nullopt;
    return found->first;
}

}  // namespace argosy::setup
