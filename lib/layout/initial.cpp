#include "layout/initial.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace argosy::layout {
namespace {

constexpr int kMean = 262140;  // mean of the sum of eight uniform integers in [0, 65535]

float bell_unit(uint64_t element, uint64_t seed, uint64_t key) {
    const auto words = philox({static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32),
                               static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                              {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    int sum = 0;
    for (const uint32_t word : words) sum += static_cast<int>(word & 0xFFFF) + static_cast<int>(word >> 16);
    return static_cast<float>(sum - kMean);
}

/// Calls visit(global index of the first element, count) for each row of the slab. A row's elements are
/// contiguous both in the slab and in the whole tensor.
template <class Visit>
void for_each_row(const std::vector<int64_t>& shape, const Slab& slab, Visit visit) {
    const size_t num_dims = shape.size();
    std::vector<int64_t> position(num_dims, 0);
    const int64_t row = slab.size.back();
    const int64_t num_rows = row == 0 ? 0 : slab.num_elements() / row;
    for (int64_t i = 0; i < num_rows; ++i) {
        int64_t index = 0;
        for (size_t dim = 0; dim < num_dims; ++dim)
            index = index * shape[dim] + slab.offset[dim] + position[dim];
        visit(index, row);
        for (size_t dim = num_dims - 1; dim-- > 0;) {
            if (++position[dim] < slab.size[dim]) break;
            position[dim] = 0;
        }
    }
}

}  // namespace

void initial_values(const ParamSpec& spec, const Slab& slab, uint64_t seed, float* out) {
    if (spec.init.kind == InitKind::Constant) {
        std::fill_n(out, slab.num_elements(), static_cast<float>(spec.init.value));
        return;
    }
    const auto scale = static_cast<float>(spec.init.value / std::sqrt(8 * (4294967296.0 - 1) / 12));
    const uint64_t key = name_key(spec.name);
    for_each_row(spec.shape, slab, [&](int64_t first, int64_t count) {
        for (int64_t i = 0; i < count; ++i) *out++ = bell_unit(first + i, seed, key) * scale;
    });
}

}  // namespace argosy::layout
