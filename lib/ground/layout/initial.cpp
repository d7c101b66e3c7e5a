#include "layout/initial.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace argosy::layout {
namespace {

constexpr int kMean = 262140;  // mean of the sum of eight uniform integers in [0, 65535]

float normal_unit(uint64_t element, uint64_t seed, uint64_t key) {
    const auto words = philox({static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32),
                               static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                              {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    int sum = 0;
    for (const uint32_t word : words) sum += static_cast<int>(word & 0xFFFF) + static_cast<int>(word >> 16);
    return static_cast<float>(sum - kMean);
}

}  // namespace

void initial_values(const ParamSpec& spec, const Slab& slab, uint64_t seed, float* out) {
    if (spec.init.kind == InitKind::Constant) {
        std::fill_n(out, slab.num_elements(), static_cast<float>(spec.init.value));
        return;
    }
    const auto scale = static_cast<float>(spec.init.value / std::sqrt(8 * (4294967296.0 - 1) / 12));
    const uint64_t key = name_key(spec.name);
    if (slab.num_elements() == 0) return;
    for_each_run(slab, whole(spec.shape), slab, [&](const Run& run) {
        const float factor = scale;  // a copy: the compiler assumes that stores to `out` may change `scale`
        for (int64_t i = 0; i < run.length; ++i)
            out[run.in_b + i] = normal_unit(run.in_a + i, seed, key) * factor;
    });
}

}  // namespace argosy::layout
