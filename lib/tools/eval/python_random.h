// The random numbers of Python's random.Random, which lm-evaluation-harness draws: the Mersenne Twister
// (Matsumoto and Nishimura 1998, MT19937) with the seeding and the derived functions of CPython.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace argosy::eval {

class PythonRandom {
  public:
    /// random.Random(seed).
    explicit PythonRandom(uint32_t seed);

    /// random(): 53 random bits, in [0, 1).
    double uniform();

    /// sample(range(size), count): `count` different indices in the order of their drawing. REQUIRES: count
    /// <= size < 2^32.
    std::vector<size_t> sample(size_t size, size_t count);

  private:
    size_t below(size_t limit);
    std::vector<size_t> sample_from_list(size_t size, size_t count);

    std::mt19937 twister_;
};

}  // namespace argosy::eval
