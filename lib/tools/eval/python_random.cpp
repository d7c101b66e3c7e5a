#include "eval/python_random.h"

#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "base/error.h"

namespace argosy::eval {
namespace {

constexpr size_t kStateSize = 624;

/// init_by_array({seed}) of the authors' reference program.
std::array<uint32_t, kStateSize> initial_state(uint32_t seed) {
    std::array<uint32_t, kStateSize> state{};
    state[0] = 19650218;
    for (uint32_t i = 1; i < kStateSize; ++i) {
        state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
    const auto mixed = [&](uint32_t i, uint32_t factor) {
        return state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * factor);
    };
    uint32_t i = 1;
    const auto advance = [&] {
        if (++i < kStateSize) return;
        state[0] = state[kStateSize - 1];
        i = 1;
    };
    for (size_t round = 0; round < kStateSize; ++round, advance()) state[i] = mixed(i, 1664525U) + seed;
    for (size_t round = 1; round < kStateSize; ++round, advance()) state[i] = mixed(i, 1566083941U) - i;
    state[0] = 0x80000000U;
    return state;
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) {
    // The standard defines this text form of the engine: its state, from the oldest number to the newest.
    std::stringstream text;
    for (const uint32_t word : initial_state(seed)) text << word << ' ';
    text << kStateSize;  // libstdc++ adds the position: the next number renews the whole state
    text >> twister_;
    ARGOSY_CHECK(!text.fail(), "this C++ library reads a Mersenne Twister in another form");
}

double PythonRandom::uniform() {
    const auto high = static_cast<double>(twister_() >> 5), low = static_cast<double>(twister_() >> 6);
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

size_t PythonRandom::below(size_t limit) {
    const int num_bits = static_cast<int>(std::bit_width(limit));
    size_t number = limit;
    while (number >= limit) number = twister_() >> (32 - num_bits);
    return number;
}

std::vector<size_t> PythonRandom::sample(size_t size, size_t count) {
    // CPython takes from a list of all elements if it is smaller than a set of the drawn ones.
    double set_size = 21;
    if (count > 5) set_size += std::pow(4, std::ceil(std::log(static_cast<double>(count) * 3) / std::log(4)));
    if (static_cast<double>(size) <= set_size) return sample_from_list(size, count);
    std::vector<size_t> drawn;
    std::set<size_t> known;
    while (drawn.size() < count) {
        const size_t index = below(size);
        if (known.insert(index).second) drawn.push_back(index);
    }
    return drawn;
}

std::vector<size_t> PythonRandom::sample_from_list(size_t size, size_t count) {
    std::vector<size_t> drawn, pool(size);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t left = size; drawn.size() < count; --left) {
        const size_t at = below(left);
        drawn.push_back(pool[at]);
        pool[at] = pool[left - 1];
    }
    return drawn;
}

}  // namespace argosy::eval
