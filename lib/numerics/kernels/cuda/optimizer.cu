// AdamW and sums in bf16 on GPUs. A thread updates adjacent elements. If a value is rounded stochastically,
// the thread updates eight elements, which share a call of Philox. If all values are fp32, the thread updates
// four elements, so that the 16 bytes of each thread of a warp are adjacent.
//
// An element of AdamW takes about 50 instructions in fp32, and 84 with everything but the gradient in bf16
// (counted for compute capability 9.0). While its 28 or 16 bytes move, an H200 has time for 170 or 97, so
// that loads must go on while a thread computes. A sum takes about 20, and there is time for 48.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace argosy::kernels::cuda {
namespace {

/// The result of one call of Philox4x32-10: eight 16-bit pieces, two in a word, for eight adjacent elements,
/// which are rounded as ops/stochastic_rounding.h defines it, with the same bits as on CPUs.
struct RandomHalves {
    static constexpr int kElements = 8;

    __device__ RandomHalves(uint64_t block, uint64_t step, const uint32_t (&key)[2])
        : words{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(step),
                static_cast<uint32_t>(step >> 32)} {
        uint32_t k0 = key[0], k1 = key[1];
#pragma unroll
        for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
            const uint64_t product0 = uint64_t{0xD2511F53} * words[0],
                           product1 = uint64_t{0xCD9E8D57} * words[2];
            words[0] = static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ k0;
            words[1] = static_cast<uint32_t>(product1);
            words[2] = static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ k1;
            words[3] = static_cast<uint32_t>(product0);
        }
    }

    __device__ uint32_t of_element(int i) const {
        // The piece is shifted out of two words, because registers cannot be indexed.
        const uint64_t pieces = i < 4 ? pair(words[0], words[1]) : pair(words[2], words[3]);
        return static_cast<uint32_t>(pieces >> 16 * (i % 4)) & 0xffff;
    }
    __device__ static uint64_t pair(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

    uint32_t words[4];
};

/// Adds `random` to the lower half of x, which rounds x up or down, and returns the upper half. Infinities
/// and NaNs stay. REQUIRES: x is the result of arithmetic, so that a NaN is quiet.
__device__ inline uint32_t round_stochastically(float x, uint32_t random) {
    const uint32_t bits = __float_as_uint(x);
    return (fabsf(x) < INFINITY ? bits + random : bits) >> 16;
}

constexpr int kThreads = 256;
constexpr int64_t kElementsPerBlock = 1 << 13;  // of sums
constexpr int64_t kUpdatesPerBlock = 1 << 14;   // 8 or 16 packs of a thread; only the first is not loaded ahead

/// The bits of kIndex say which of weights, first and second moments are bf16.
template <int kIndex>
struct Variant {
    static constexpr bool kWeights = (kIndex & 4) != 0, kFirst = (kIndex & 2) != 0,
                          kSecond = (kIndex & 1) != 0;
    static constexpr bool kRounds = kIndex != 0;
    /// The number of elements that a thread updates at a time.
    static constexpr int kPack = kRounds ? RandomHalves::kElements : cuda::kPack<float>;

    /// Blocks per multiprocessor for which there are registers.
    static constexpr int kBlocks = kIndex == 0 || kIndex == 7 ? 3 : 2;

    static bool matches(const AdamW& args) {
        return (args.weights.bf16 != nullptr) == kWeights && (args.first_moments.bf16 != nullptr) == kFirst &&
               (args.second_moments.bf16 != nullptr) == kSecond;
    }
};
constexpr int kNumVariants = 8;
struct Item {
    AdamWRows rows;
    bool packed;  // whether packs are aligned to 16 bytes, and to blocks of random bits

    int64_t num_blocks() const { return ceil_div(rows.update.size, kUpdatesPerBlock); }
};

template <bool kNarrow>
using StateType = std::conditional_t<kNarrow, BFloat16, float>;

template <int kCount, bool kNarrow>
__device__ Elements<StateType<kNarrow>, kCount> load_state(const FloatOrBFloat16& state, int64_t i) {
    if constexpr (kNarrow) return load_elements<kCount>(state.bf16 + i);
    if constexpr (!kNarrow) return load_elements<kCount>(state.fp32 + i);
}

/// Rounds kCount adjacent floats stochastically. `element`: the number of the first one in the whole
/// parameter. REQUIRES: if kCount is not 1, kCount is 8, and `element` is a multiple of 8.
template <int kCount>
__device__ void store_rounded(BFloat16* to, uint64_t element, uint64_t number, const uint32_t (&key)[2],
                              const Floats<kCount>& x) {
    const RandomHalves random(element / RandomHalves::kElements, number, key);
    const int first = kCount == 1 ? static_cast<int>(element % RandomHalves::kElements) : 0;
    Elements<BFloat16, kCount> narrow = {};
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
        narrow.words[k / 2] |= round_stochastically(x[k], random.of_element(first + k)) << 16 * (k % 2);
    }
    store(to, narrow);
}

/// `element`: the number of element i in the whole parameter.
template <int kCount, bool kNarrow>
__device__ void store_state(const FloatOrBFloat16& state, int64_t i, uint64_t element, uint64_t update_number,
                            const Floats<kCount>& x) {
    if constexpr (kNarrow) {
        store_rounded<kCount>(state.bf16 + i, element, update_number, state.rounding_key, x);
    } else {
        store(state.fp32 + i, x);
    }
}

/// The state of one element. Each operation rounds on its own.
struct Element {
    float weight, first, second;

    __device__ void update(const AdamW& args, float gradient) {
        const float g = __fmul_rn(gradient, args.gradient_factor);
        first = __fadd_rn(first, __fmul_rn(__fsub_rn(g, first), args.one_minus_beta1));
        second = __fadd_rn(__fmul_rn(second, args.beta2), __fmul_rn(__fmul_rn(g, g), args.one_minus_beta2));
        const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(second), args.root_factor), args.eps);
        weight = __fsub_rn(__fmul_rn(weight, args.decay_factor),
                           __fmul_rn(__fdiv_rn(first, root), args.step_size));
    }
};

/// Elements that are adjacent in memory, but belong to rows of the whole parameter (AdamWRows).
struct Rows {
    uint64_t first_element;
    int64_t size, length, stride;

    __host__ __device__ bool one_row() const { return length >= size; }

    /// The number of element i in the whole parameter.
    __device__ uint64_t number_of(int64_t i) const {
        const auto index = static_cast<uint64_t>(i), row_length = static_cast<uint64_t>(length);
        const uint64_t row = one_row() ? 0 : index / row_length;
        return first_element + row * static_cast<uint64_t>(stride) + (index - row * row_length);
    }

    /// Whether each pack of elements uses one whole block of random bits.
    bool in_blocks() const {
        const auto whole = [](auto elements) { return elements % RandomHalves::kElements == 0; };
        return whole(first_element) && (one_row() || (whole(length) && whole(stride)));
    }
};

__host__ __device__ inline Rows rows_of(const AdamWRows& rows) {
    return {rows.update.first_element, rows.update.size, rows.row_length, rows.row_stride};
}
__host__ __device__ inline Rows rows_of(const AddRoundedRows& rows) {
    return {rows.addition.first_element, rows.addition.size, rows.row_length, rows.row_stride};
}

/// The inputs of an update of kCount adjacent elements, as memory holds them.
template <class V, class Gradient, int kCount>
struct Loaded {
    Elements<Gradient, kCount> gradient;
    Elements<StateType<V::kWeights>, kCount> weights;
    Elements<StateType<V::kFirst>, kCount> first;
    Elements<StateType<V::kSecond>, kCount> second;

    __device__ Loaded(const AdamW& args, const Gradient* gradients, int64_t i)
        : gradient(load_elements<kCount>(gradients + i)),
          weights(load_state<kCount, V::kWeights>(args.weights, i)),
          first(load_state<kCount, V::kFirst>(args.first_moments, i)),
          second(load_state<kCount, V::kSecond>(args.second_moments, i)) {}
};

template <class V, class Gradient, int kCount>
__device__ void update(const AdamWRows& rows, int64_t i, const Loaded<V, Gradient, kCount>& loaded) {
    const AdamW& args = rows.update;
    const auto gradient = widened(loaded.gradient);
    auto weights = widened(loaded.weights), first = widened(loaded.first), second = widened(loaded.second);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
        Element element = {weights[k], first[k], second[k]};
        element.update(args, gradient[k]);
        weights[k] = element.weight, first[k] = element.first, second[k] = element.second;
    }
    if (args.bf16_copy != nullptr) store(args.bf16_copy + i, weights);
    const uint64_t number = V::kRounds ? rows_of(rows).number_of(i) : 0;
    store_state<kCount, V::kWeights>(args.weights, i, number, args.update_number, weights);
    store_state<kCount, V::kFirst>(args.first_moments, i, number, args.update_number, first);
    store_state<kCount, V::kSecond>(args.second_moments, i, number, args.update_number, second);
}

/// A thread loads its next elements before it updates the current ones, because arithmetic takes almost as
/// long as memory: one after the other, neither would be busy.
template <class V, class Gradient>
__device__ void update_block(const Item& item, const Gradient* gradients, int64_t begin) {
    using Pack = Loaded<V, Gradient, V::kPack>;
    constexpr int64_t kStep = kThreads * V::kPack;
    const AdamW& args = item.rows.update;
    const int64_t rest = args.size - begin;
    const int64_t end = begin + (rest < kUpdatesPerBlock ? rest : kUpdatesPerBlock);
    const int64_t end_of_packs = item.packed ? end - (end - begin) % V::kPack : begin;
    int64_t i = begin + threadIdx.x * V::kPack;
    if (i < end_of_packs) {
        Pack next(args, gradients, i);
        for (; i < end_of_packs; i += kStep) {
            const Pack current = next;
            if (i + kStep < end_of_packs) next = Pack(args, gradients, i + kStep);
            update(item.rows, i, current);
        }
    }
    for (i = end_of_packs + threadIdx.x; i < end; i += kThreads) {
        update(item.rows, i, Loaded<V, Gradient, 1>(args, gradients, i));
    }
}

template <class V>
__global__ void __launch_bounds__(kThreads, V::kBlocks)
    adamw_kernel(const __grid_constant__ TensorList<Item> list) {
    const auto place = list.place();
    const Item& item = list.items[place.item];
    const AdamW& args = item.rows.update;
    const int64_t begin = place.block * kUpdatesPerBlock;
    if (args.bf16_gradient != nullptr) {
        update_block<V>(item, args.bf16_gradient, begin);
    } else {
        update_block<V>(item, args.gradient, begin);
    }
}

bool in_packs_of_16_bytes(const AdamW& args) {
    return in_packs<float>(0, args.gradient, args.bf16_gradient, args.bf16_copy, args.weights.fp32,
                           args.weights.bf16, args.first_moments.fp32, args.first_moments.bf16,
                           args.second_moments.fp32, args.second_moments.bf16);
}

/// Updates the tensors of variant kIndex, then the tensors of the next variants.
template <int kIndex = 0>
void update_variants(std::span<const AdamWRows> tensors, GpuStream stream) {
    using V = Variant<kIndex>;
    const auto item_of = [&](int64_t i) {
        const AdamWRows& rows = tensors[i];
        Item item = {rows, in_packs_of_16_bytes(rows.update) && (!V::kRounds || rows_of(rows).in_blocks())};
        if (!V::matches(rows.update)) item.rows.update.size = 0;
        return item;
    };
    for_each_list<Item>(static_cast<int64_t>(tensors.size()), item_of, [&](const TensorList<Item>& list) {
        launch({"adamw", list.num_blocks(), kThreads, stream}, adamw_kernel<V>, list);
    });
    if constexpr (kIndex + 1 < kNumVariants) update_variants<kIndex + 1>(tensors, stream);
}

template <int kCount>
__device__ void add_elements(const AddRoundedRows& rows, uint64_t number, int64_t i) {
    const AddRounded& args = rows.addition;
    auto x = load<kCount>(args.term + i);
    if (args.accumulate) {
        const auto sum = load<kCount>(args.sum + i);
#pragma unroll
        for (int k = 0; k < kCount; ++k) x[k] = __fadd_rn(sum[k], x[k]);
    }
    store_rounded<kCount>(args.sum + i, rows_of(rows).number_of(i), number, args.rounding_key, x);
}

__global__ void __launch_bounds__(kThreads)
    add_rounded_kernel(const __grid_constant__ AddRoundedRows rows, bool packed) {
    constexpr int kPack = RandomHalves::kElements;
    const uint64_t number = *rows.addition.first_number + rows.addition.number;
    const int64_t begin = blockIdx.x * kElementsPerBlock, rest = rows.addition.size - begin;
    const int64_t end = begin + (rest < kElementsPerBlock ? rest : kElementsPerBlock);
    const int64_t end_of_packs = packed ? end - (end - begin) % kPack : begin;
    for (int64_t i = begin + threadIdx.x * kPack; i < end_of_packs; i += kThreads * kPack) {
        add_elements<kPack>(rows, number, i);
    }
    for (int64_t i = end_of_packs + threadIdx.x; i < end; i += kThreads) add_elements<1>(rows, number, i);
}

}  // namespace

void adamw(std::span<const AdamWRows> tensors, GpuStream stream) { update_variants(tensors, stream); }
void add_rounded(const AddRoundedRows& rows, GpuStream stream) {
    const AddRounded& args = rows.addition;
    if (args.size == 0) return;
    const bool packed = in_packs<float>(0, args.term, args.sum) && rows_of(rows).in_blocks();
    launch({"add_rounded", static_cast<unsigned>(ceil_div(args.size, kElementsPerBlock)), kThreads, stream},
           add_rounded_kernel, rows, packed);
}

}  // namespace argosy::kernels::cuda
