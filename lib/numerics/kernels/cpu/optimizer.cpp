// AdamW and sums in bf16, tile by tile in the L1 cache, with stochastic rounding of values kept in bf16.
#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

constexpr int kTile = 512;  // elements that are updated together, in the L1 cache
constexpr int kBlock = 8;   // elements that share one call of Philox
constexpr int kMaxBlocks = kTile / kBlock + 1;
static_assert(kTile % kLanes == 0);

/// Computes Philox4x32-10 for kMaxBlocks consecutive counters, in plain loops that the compiler vectorises.
/// random[8 * b + i] becomes the i-th 16-bit piece of block first_block + b.
void random_halves(uint64_t first_block, uint64_t step, const uint32_t (&key)[2], uint16_t* random) {
    uint32_t c0[kMaxBlocks], c1[kMaxBlocks], c2[kMaxBlocks], c3[kMaxBlocks];
    for (int b = 0; b < kMaxBlocks; ++b) {
        c0[b] = static_cast<uint32_t>(first_block + b);
        c1[b] = static_cast<uint32_t>((first_block + b) >> 32);
        c2[b] = static_cast<uint32_t>(step);
        c3[b] = static_cast<uint32_t>(step >> 32);
    }
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
        for (int b = 0; b < kMaxBlocks; ++b) {
            const uint64_t product0 = uint64_t{0xD2511F53} * c0[b], product1 = uint64_t{0xCD9E8D57} * c2[b];
            c0[b] = static_cast<uint32_t>(product1 >> 32) ^ c1[b] ^ k0;
            c1[b] = static_cast<uint32_t>(product1);
            c2[b] = static_cast<uint32_t>(product0 >> 32) ^ c3[b] ^ k1;
            c3[b] = static_cast<uint32_t>(product0);
        }
    }
    for (int b = 0; b < kMaxBlocks; ++b) {
        const uint32_t words[4] = {c0[b], c1[b], c2[b], c3[b]};
        for (int i = 0; i < 4; ++i) {
            random[kBlock * b + 2 * i] = static_cast<uint16_t>(words[i]);
            random[kBlock * b + 2 * i + 1] = static_cast<uint16_t>(words[i] >> 16);
        }
    }
}

uint32_t bits_of(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/// Adds `random` to the lower half of each float, which rounds the float up or down, and keeps the upper
/// half. Infinities and NaNs stay.
void round_stochastically(const float* __restrict from, const uint16_t* __restrict random,
                          BFloat16* __restrict to, int64_t size) {
    constexpr uint32_t kInfinity = 0x7f800000, kQuiet = 0x400000;
    for (int64_t i = 0; i < size; ++i) {
        const uint32_t bits = bits_of(from[i]), magnitude = bits & 0x7fffffff, more = random[i];
        const uint32_t rounded = bits + (magnitude < kInfinity ? more : 0);
        to[i].bits = static_cast<uint16_t>((rounded | (magnitude > kInfinity ? kQuiet : 0)) >> 16);
    }
}

/// The random bits of a tile: the number of its first element in the whole parameter, and of the rounding.
struct TileRounding {
    uint64_t first_element, number;
    const uint32_t (&key)[2];
};

/// Rounds a tile of `size` floats.
void round_tile(const TileRounding& rounding, const float* from, BFloat16* to, int64_t size) {
    uint16_t random[kMaxBlocks * kBlock];
    random_halves(rounding.first_element / kBlock, rounding.number, rounding.key, random);
    round_stochastically(from, random + rounding.first_element % kBlock, to, size);
}

/// Elements [begin, begin + size) as floats: fp32 elements in place, bf16 elements in a buffer, which
/// finish() rounds and writes back.
class Tile {
  public:
    Tile(const AdamW& args, const FloatOrBFloat16& row, int64_t begin, int64_t size)
        : args_(args), row_(row), begin_(begin), size_(size) {
        if (row.bf16 == nullptr) return;
        for_each_vector(size,
                        [&](int64_t i, auto load, auto) { store(buffer_ + i, load(row.bf16 + begin + i)); });
    }
    float* data() { return row_.bf16 == nullptr ? row_.fp32 + begin_ : buffer_; }

    void finish() const {
        if (row_.bf16 == nullptr) return;
        round_tile({args_.first_element + begin_, args_.update_number, row_.rounding_key}, buffer_,
                   row_.bf16 + begin_, size_);
    }

  private:
    const AdamW& args_;
    const FloatOrBFloat16& row_;
    int64_t begin_, size_;
    float buffer_[kTile];
};

/// Elements [begin, begin + size) of the gradient as floats: in place, or widened in the buffer of kTile
/// floats.
const float* gradient_of(const AdamW& args, int64_t begin, int64_t size, float* buffer) {
    if (args.bf16_gradient == nullptr) return args.gradient + begin;
    for_each_vector(
        size, [&](int64_t i, auto load, auto) { store(buffer + i, load(args.bf16_gradient + begin + i)); });
    return buffer;
}

void update(const AdamW& args, int64_t begin, int64_t size) {
    Tile weights(args, args.weights, begin, size), first(args, args.first_moments, begin, size),
        second(args, args.second_moments, begin, size);
    float *w = weights.data(), *m = first.data(), *v = second.data();
    float widened[kTile];
    const float* gradient = gradient_of(args, begin, size, widened);
    for_each_vector(size, [&](int64_t i, auto load, auto store) {
        const Vector g = load(gradient + i) * set(args.gradient_factor);
        const Vector old_mean = load(m + i);
        const Vector mean = old_mean + (g - old_mean) * set(args.one_minus_beta1);
        const Vector square = load(v + i) * set(args.beta2) + g * g * set(args.one_minus_beta2);
        const Vector root = square_root(square) * set(args.root_factor) + set(args.eps);
        const Vector weight = load(w + i) * set(args.decay_factor) - mean / root * set(args.step_size);
        store(m + i, mean);
        store(v + i, square);
        store(w + i, weight);
        if (args.bf16_copy != nullptr) store(args.bf16_copy + begin + i, weight);
    });
    weights.finish();
    first.finish();
    second.finish();
}

}  // namespace

void adamw(const AdamW& args) {
    for (int64_t begin = 0; begin < args.size; begin += kTile) {
        update(args, begin, args.size - begin < kTile ? args.size - begin : kTile);
    }
}

void add_rounded(const AddRounded& args) {
    const uint64_t number = *args.first_number + args.number;
    for (int64_t begin = 0; begin < args.size; begin += kTile) {
        const int64_t size = args.size - begin < kTile ? args.size - begin : kTile;
        const float* terms = args.term + begin;
        BFloat16* sums = args.sum + begin;
        float tile[kTile];
        if (args.accumulate) {
            for_each_vector(
                size, [&](int64_t i, auto load, auto) { store(tile + i, load(sums + i) + load(terms + i)); });
            terms = tile;
        }
        round_tile({args.first_element + begin, number, args.rounding_key}, terms, sums, size);
    }
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
