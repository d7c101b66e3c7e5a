// The text form of chosen cuBLASLt algorithms, one line for each problem:
//
//   cublasLt 4 13.1.0 NVIDIA-H200 bf16 bf16 fp32 unscaled promoted T N 4096 1024 8192 8192 8192 4096 add
//   plain 256 256 256 256 256 <hex>
//
// The fields are the number of this format; the cuBLASLt version and the device that the algorithm is for;
// the problem's types of A, B and the result; "unscaled", or what shares a scale: "matrix", "line", "block",
// "block128", "square-a" or "square-b"; "promoted" or "fast" sums; transpositions of A and B, m, n, k,
// strides of A, B and D, "set" D, "add" to it, or the sum "plus" another matrix, "bias" or "plain",
// alignments of A, B, C, D and the bias in bytes; the algorithm's bytes in hex.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cublas/problem.h"

namespace argosy::cublas {

/// The bytes by which cuBLASLt describes an algorithm. Only the same version of cuBLASLt can read them.
using Algorithm = std::array<std::byte, 64>;

struct Choice {
    Problem problem;
    Algorithm algorithm;
};

/// The cuBLASLt version and the device for which an algorithm's bytes are valid.
struct Origin {
    std::string version;  // "13.1.0"
    std::string device;   // without spaces
};

/// Returns the line of a choice, newline included.
std::string line_of(const Choice& choice, const Origin& origin);

/// Returns the choices in `text` that have this origin, and skips those of another origin. Throws UserError
/// for a line that is incomplete or not in this format.
std::vector<Choice> choices_in(std::string_view text, const Origin& origin);

}  // namespace argosy::cublas
