// The random bits of stochastic rounding, and the rounding, as optim/stochastic_rounding.h defines them: the
// same bits as on processors.
#pragma once

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {

/// The 16-bit pieces of one call of Philox4x32-10, two in a word, for eight adjacent elements.
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
        // The piece is shifted out of two words, since registers cannot be indexed.
        const uint64_t pieces = i < 4 ? pair(words[0], words[1]) : pair(words[2], words[3]);
        return static_cast<uint32_t>(pieces >> 16 * (i % 4)) & 0xffff;
    }
    __device__ static uint64_t pair(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

    uint32_t words[4];
};

/// The upper half of x after `random` is added to the lower half, which rounds x up or down. Infinities and
/// NaNs stay. REQUIRES: x comes out of arithmetic, which quiets a NaN.
__device__ inline uint32_t round_stochastically(float x, uint32_t random) {
    const uint32_t bits = __float_as_uint(x);
    return (fabsf(x) < INFINITY ? bits + random : bits) >> 16;
}

}  // namespace argosy::kernels::cuda
