// Elements that are rows of a whole parameter, for the tests of kernels that round them by their number there
// (AdamWRows and AddRoundedRows in kernels/optimizer.h).
#pragma once

#include <cstdint>

namespace argosy::kernels {

struct RowLayout {
    int64_t size;
    uint64_t first_element;
    int64_t row_length, row_stride;
    bool aligned = true;  // in memory, to 16 bytes
};

inline constexpr int64_t kOneRow = int64_t{1} << 40;
/// Whole parameters; rows that begin where blocks of random bits begin; and rows that do not.
inline constexpr RowLayout kRowLayouts[] = {
    {1, 0, kOneRow, 0},        {8, 0, 8, 0},       {2100, 0, 2100, 7}, {8200, 1 << 20, 8200, 0},
    {16384, 8, kOneRow, 1},    {600, 24, 40, 120}, {16424, 0, 8, 64},  {603, 3, kOneRow, 9},
    {600, 16, 40, 61},         {8195, 7, 13, 52},  {500, 8, 20, 64},   {2048, 0, kOneRow, 0, false},
    {100, 0xfffffffc8, 8, 16}, {0, 0, 1, 1}};

}  // namespace argosy::kernels
