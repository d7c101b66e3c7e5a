#include "data/synthetic_arithmetic.h"

#include <fmt/format.h>

#include <algorithm>

namespace argosy::data {

Sum random_sum(RandomStream& random) {
    const int kind = random.below(100);
    if (kind < 20) {
        const int left = random.between(2, 12), right = random.between(2, 12);
        return {fmt::format("{} times {} is", left, right), left * right};
    }
    const int largest = random.chance(50) ? 20 : 99;
    const int first = random.between(1, largest), second = random.between(1, largest);
    if (kind < 60) return {fmt::format("{} plus {} is", first, second), first + second};
    const int left = std::max(first, second), right = std::min(first, second);
    return {fmt::format("{} minus {} is", left, right), left - right};
}

}  // namespace argosy::data
