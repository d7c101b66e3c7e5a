// Rounds fp32 numbers stochastically to bf16: up or down at random, so that the expected result is the number
// itself. A small addition to a large number is kept on average, however small it is: an update of a weight,
// or the gradient of one microbatch beside the sum of many. The random bits are a function of the seed, the
// parameter, the element and the number of the rounding: all layouts round alike, and a resumed run repeats
// the bits.
//
// Element g of a whole tensor, counted row-major, takes 16 bits b: the low half (even g) or high half (odd g)
// of word g % 8 / 2 of Philox4x32-10(counter = (g / 8, number), key). The result is the upper half of bits(x)
// + b in integers. x is rounded away from zero with the probability (low half of bits(x)) / 2^16. Values that
// bf16 can represent, infinities and NaN do not change.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "layout/slab.h"

namespace argosy::ops {

/// The tensor that is rounded: one of a parameter's, or a gradient at a stage of its sum. Each has its own
/// random bits.
enum class Rounded : uint32_t {
    Weight,
    FirstMoment,
    SecondMoment,
    Gradient,           // a sum over microbatches
    UnreducedGradient,  // the same before the reduce-scatter over the shards
    GradientOfRanks,    // a sum over ranks
    GradientOfStages,   // a sum of two pipeline stages
    ClippedWeight,      // after Weight in the same update
};

using RoundingKey = std::array<uint32_t, 2>;
/// Values that are summed after they were rounded have different parts, so that their errors are independent.
RoundingKey rounding_key(uint64_t seed, std::string_view parameter, Rounded what, uint32_t part = 0);

/// Returns `wide` (fp32) in bf16. `rows` maps its elements to elements of the whole parameter.
at::Tensor rounded_stochastically(const at::Tensor& wide, const layout::SlabRows& rows, uint64_t number,
                                  const RoundingKey& key);

// Sums in bf16, for gradients. Each addition is rounded once, stochastically.

/// Roundings are numbered by the update, the microbatch, and within a microbatch in order.
inline uint64_t rounding_number(int64_t update, int64_t microbatch, int64_t count = 0) {
    return (static_cast<uint64_t>(update) << 32) + (static_cast<uint64_t>(microbatch) << 12) +
           static_cast<uint64_t>(count);
}

/// The number of the first rounding in the work that comes next on this rank, the same for all sums. Kernels
/// read the number from the memory of their device and do not get it as an argument, because a recorded GPU
/// graph repeats its kernels with the same arguments for other microbatches and in other steps.
class FirstRounding {
  public:
    explicit FirstRounding(c10::Device device);
    FirstRounding(const FirstRounding&) = delete;

    /// On a GPU: for the work that is put on the current stream from now on.
    void set(uint64_t number);
    uint64_t number() const { return number_; }
    /// The number in the memory from which kernels for tensors like x read it.
    const uint64_t* address_for(const at::Tensor& x) const;

  private:
    uint64_t number_ = 0;
    at::Tensor on_device_;
};

/// The random bits with which a sum is rounded next.
struct SumRounding {
    RoundingKey key;
    layout::SlabRows rows;       // the elements of the whole parameter that the sum has
    const FirstRounding* first;  // REQUIRES: outlives the SumRounding
    /// The number of the rounding, counted from *first.
    int64_t microbatch = 0, count = 0;

    uint64_t offset() const { return rounding_number(0, microbatch, count); }
    /// The rounding of the elements from `begin` on. REQUIRES: a row of `rows` begins there, or there is one
    /// row.
    SumRounding from(int64_t begin) const;
};

/// sum = sum + term, or term without `accumulate`: computed in fp32 and rounded. `sum` is in bf16, `term` in
/// fp32. REQUIRES: both are contiguous.
void add_rounded(const at::Tensor& sum, const at::Tensor& term, bool accumulate, const SumRounding& rounding);

/// into = value (fp32, or of the type of `into`), rounded as rounded_stochastically() does if `into` is bf16.
void store(const at::Tensor& into, const at::Tensor& value, const layout::SlabRows& rows, uint64_t number,
           const RoundingKey& key);

}  // namespace argosy::ops
