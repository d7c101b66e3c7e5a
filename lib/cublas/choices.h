// Algorithms as text, a line each:
//
//   cublasLt 13.1.0 NVIDIA-H200 bf16 fp32 T N 4096 1024 16384 4096 16384 4096 add plain 256 256 256 256 <hex>
//
// the version and the device that the algorithm is for; the problem's types, transpositions of A and B, m, n,
// k, strides of A, B and D, whether it adds to D and whether it has a bias, alignments of A, B, D and the
// bias; the algorithm's bytes.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cublas/problem.h"

namespace argosy::cublas {

/// cuBLASLt's own description, which it reads back in the same version.
using Algorithm = std::array<std::byte, 64>;

struct Choice {
    Problem problem;
    Algorithm algorithm;
};

/// What an algorithm's bytes are good for.
struct Origin {
    std::string version;  // "13.1.0"
    std::string device;   // without spaces
};

/// With its line's end.
std::string line_of(const Choice& choice, const Origin& origin);

/// Those of this origin. Throws UserError for a line of this program's that is torn or is none.
std::vector<Choice> choices_in(std::string_view text, const Origin& origin);

}  // namespace argosy::cublas
