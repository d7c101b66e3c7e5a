#include "parallel/unit_layout.h"

#include <functional>
#include <numeric>

#include "layout/param_spec.h"

namespace argosy::parallel {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Rounds up to 256 bytes of bf16, the alignment that cuBLASLt's fastest products need.
int64_t aligned(int64_t element) {
    constexpr int64_t kAlignment = 128;
    return (element + kAlignment - 1) / kAlignment * kAlignment;
}

/// The number of entries from `first` on that belong to the same join and have no padding between them.
size_t count_neighbours(const std::vector<UnitLayout::Entry>& entries, size_t first, int num_shards) {
    const auto join = model::join_of(entries[first].role);
    size_t last = first;
    while (join && last + 1 < entries.size() && model::join_of(entries[last + 1].role) == join &&
           entries[last].shape[0] % num_shards == 0) {
        ++last;
    }
    return last + 1 - first;
}

}  // namespace

UnitLayout::UnitLayout(const std::vector<Entry>& entries, int num_shards) {
    for (size_t first = 0, count = 0; first < entries.size(); first += count) {
        count = count_neighbours(entries, first, num_shards);
        Slice all{num_elements_, 0, entries[first].shape};
        all.shape[0] = 0;
        for (size_t i = first; i < first + count; ++i) {
            std::vector<int64_t> shape = entries[i].shape;
            all.shape[0] += shape[0];
            all.num_elements += product(shape);
            shape[0] = layout::chunk(shape[0], num_shards, 0).size * num_shards;
            slices_.push_back({num_elements_, product(shape), shape});
            num_elements_ += product(shape);
        }
        num_elements_ = aligned(num_elements_);
        const auto join = model::join_of(entries[first].role);
        if (join && count == model::roles_of(*join).size()) joined_[*join] = all;
    }
}

at::Tensor UnitLayout::padded(const at::Tensor& buffer, size_t i) const {
    const Slice& slice = slices_[i];
    return buffer.narrow(0, slice.begin, slice.num_elements).view(slice.shape);
}

model::Joined UnitLayout::joined(const at::Tensor& buffer) const {
    model::Joined found;
    for (int i = 0; i < model::kNumJoins; ++i) {
        const auto join = static_cast<model::Join>(i);
        if (!joined_[join]) continue;
        const auto& [begin, num_elements, shape] = *joined_[join];
        found[join] = buffer.narrow(0, begin, num_elements).view(shape);
    }
    return found;
}

}  // namespace argosy::parallel
