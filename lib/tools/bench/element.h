// The element types and reductions that a benchmark may use, under nccl-tests' names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/element_type.h"

namespace argosy::bench {

const char* name(ElementType type);                    // "bfloat16"
const char* name(std::optional<Reduction> reduction);  // "none" of a collective that reduces nothing
bool is_signed(ElementType type);

/// The type or operation of this name, or all of them for "all". Throws UserError, which lists the known
/// names, for any other name.
std::vector<ElementType> types_named(const std::string& name);
std::vector<Reduction> reductions_named(const std::string& name);

/// The bits of `value` as an element of `type`, in the lower bytes of the result. The value is rounded if the
/// type cannot represent it exactly.
uint64_t bits_of(double value, ElementType type);

/// The largest n <= 2^20 such that the type represents all integers up to n exactly.
int largest_exact(ElementType type);

}  // namespace argosy::bench
