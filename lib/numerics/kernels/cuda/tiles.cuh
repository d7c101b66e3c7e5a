// Passes over a matrix in tiles of 128 x 128 elements that write a byte for each element: as a matrix, its
// transpose, or both. A thread has a square of 8 x 8 elements: 8 loads of 16 bytes, all of them in flight at
// once. The thread transposes the square's bytes in registers; words of 8 bytes go through the memory of the
// block, so that both results are written in runs of 128 bytes.
//
// A policy `Bytes` names the type of the elements (Element) and the kernel (kName), and says where the matrix
// begins and the distance of its rows (begin(), stride()). factors(), which all threads of a block call
// together, finds what bytes(), the bytes of one row of a square, takes; kFindsScales says whether it finds
// the scales of blocks.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace argosy::kernels::cuda {

inline constexpr int kTileThreads = 256, kTileWarps = kTileThreads / kWarp;

// A tile, a thread's square in it, and the squares in a row of the tile.
inline constexpr int kTile = 128, kSide = 8, kSquares = kTile / kSide;

/// Where a square begins, and how much of it is in the matrix: kSide rows and columns, less at an end, or 0.
struct Square {
    int64_t row, column;
    int num_rows, num_columns;

    __device__ bool is_empty() const { return num_rows == 0 || num_columns == 0; }
};

/// A row of a square.
template <class T>
using Part = Elements<T, kSide>;

template <bool kPacked, class T>
__device__ Part<T> load_part(const T* from, int count) {
    if constexpr (kPacked) {
        return load_elements<kSide>(from);
    } else {
        Part<T> x = {};
#pragma unroll
        for (int k = 0; k < kSide; ++k) {
            if (k < count) x.words[k / x.kPerWord] |= word_of(from[k]) << k % x.kPerWord * (32 / x.kPerWord);
        }
        return x;
    }
}

/// Stores the bytes of a square.
template <bool kPacked>
__device__ void store_square(uint8_t* to, int64_t stride, const uint2 (&rows)[kSide], const Square& square) {
#pragma unroll
    for (int i = 0; i < kSide; ++i, to += stride) {
        if constexpr (kPacked) {
            store_8_bytes(to, rows[i]);
        } else {
#pragma unroll
            for (int k = 0; k < kSide; ++k) {
                if (i < square.num_rows && k < square.num_columns)
                    to[k] = static_cast<uint8_t>((k < 4 ? rows[i].x : rows[i].y) >> k % 4 * 8);
            }
        }
    }
}

/// Replaces four words of four bytes each by their transpose.
__device__ inline void transpose(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);  // a0 b0 a1 b1
    const uint32_t ab_end = __byte_perm(a, b, 0x7362), cd_end = __byte_perm(c, d, 0x7362);
    a = __byte_perm(ab, cd, 0x5410), b = __byte_perm(ab, cd, 0x7632);
    c = __byte_perm(ab_end, cd_end, 0x5410), d = __byte_perm(ab_end, cd_end, 0x7632);
}

struct Outputs {
    int64_t num_rows, row_size;
    uint8_t* values;  // or null
    int64_t value_stride;
    uint8_t* transposed;  // or null
    int64_t transposed_stride;
    int64_t first_row = 0;  // of those that a launch writes
};

/// The square in row y and column x of the squares of a tile.
__device__ inline Square square_at(int64_t first_row, int64_t first_column, int x, int y, int64_t num_rows,
                                   int64_t row_size) {
    const auto count = [](int64_t left) {
        return static_cast<int>(left < 0 ? 0 : left < kSide ? left : kSide);
    };
    Square square = {first_row + y * kSide, first_column + x * kSide};
    square.num_rows = count(num_rows - square.row), square.num_columns = count(row_size - square.column);
    return square;
}

/// Blocks per multiprocessor for which there are registers: a thread keeps 64 elements. With four, the
/// compiler for 10.0 spills registers of kernels that find scales.
template <class Bytes, bool kPacked>
constexpr int kMinBlocks = !kPacked || sizeof(typename Bytes::Element) == 4 ? 2
                           : Bytes::kFindsScales && kCompiledFor >= 1000    ? 3
                                                                            : 4;

/// kPacked: all squares are whole, and each row of a square can be loaded and stored at once. In that case a
/// thread stores nothing before all its loads are issued: 32 KB of a block.
template <class Bytes, bool kPacked>
__global__ void __launch_bounds__(kTileThreads, kMinBlocks<Bytes, kPacked>)
    tile_kernel(Bytes from, Outputs out) {
    // [column, word of eight rows]. Half a warp writes words of 16 columns and reads 16 words of one column.
    // The exclusive or makes these different pairs of banks.
    __shared__ Shared<uint64_t, kTile * kSquares> columns;
    const int x = threadIdx.x % kSquares, y = threadIdx.x / kSquares;
    const int64_t first_row = out.first_row + int64_t{blockIdx.y} * kTile,
                  first_column = int64_t{blockIdx.x} * kTile;
    const Square square = square_at(first_row, first_column, x, y, out.num_rows, out.row_size);
    Part<typename Bytes::Element> loaded[kSide] = {};
    if (!square.is_empty()) {
        const auto* at = from.begin() + square.row * from.stride() + square.column;
#pragma unroll
        for (int i = 0; i < kSide; ++i, at += from.stride()) {
            if (kPacked || i < square.num_rows) loaded[i] = load_part<kPacked>(at, square.num_columns);
        }
    }
    const auto factors = from.template factors<kPacked>(square, loaded);
    uint2 rows[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) rows[i] = from.bytes(loaded[i], i, factors);
    if (out.values != nullptr && !square.is_empty()) {
        store_square<kPacked>(out.values + square.row * out.value_stride + square.column, out.value_stride,
                              rows, square);
    }
    if (out.transposed == nullptr) return;
#pragma unroll
    for (int i = 0; i < kSide; i += 4) {
        transpose(rows[i].x, rows[i + 1].x, rows[i + 2].x, rows[i + 3].x);
        transpose(rows[i].y, rows[i + 1].y, rows[i + 2].y, rows[i + 3].y);
    }
#pragma unroll
    for (int k = 0; k < kSide; ++k) {
        const uint2 low = rows[k % 4], high = rows[k % 4 + 4];  // of rows 0 to 3 and 4 to 7
        const uint64_t word = k < 4 ? low.x | uint64_t{high.x} << 32 : low.y | uint64_t{high.y} << 32;
        columns[(x * kSide + k) * kSquares + (x ^ y)] = word;
    }
    __syncthreads();
    const Square other = square_at(first_column, first_row, x, y, out.row_size, out.num_rows);
    if (other.is_empty()) return;
#pragma unroll
    for (int k = 0; k < kSide; ++k) {
        const uint64_t word = columns[(y * kSide + k) * kSquares + (x ^ y)];
        rows[k] = {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
    }
    store_square<kPacked>(out.transposed + other.row * out.transposed_stride + other.column,
                          out.transposed_stride, rows, other);
}

template <bool kPacked, class Bytes>
void launch_rows(const Bytes& from, const Outputs& out, GpuStream stream) {
    if (out.num_rows == out.first_row) return;
    const dim3 blocks(static_cast<unsigned>(ceil_div(out.row_size, kTile)),
                      static_cast<unsigned>(ceil_div(out.num_rows - out.first_row, kTile)));
    launch({Bytes::kName, blocks, kTileThreads, stream}, tile_kernel<Bytes, kPacked>, from, out);
}

/// `packed`: whether rows of squares can be loaded at once. Without a transpose, the last rows, which are no
/// whole square, have a launch of their own: the tokens of an evaluation are any number.
template <class Bytes>
void launch_tiles(const Bytes& from, const Outputs& out, bool packed, GpuStream stream) {
    if (out.row_size == 0) return;
    int64_t sizes = out.row_size;
    if (out.values != nullptr) sizes |= out.value_stride;
    if (out.transposed != nullptr) sizes |= out.transposed_stride | out.num_rows;
    const auto pointers =
        reinterpret_cast<uintptr_t>(out.values) | reinterpret_cast<uintptr_t>(out.transposed);
    packed = packed && sizes % kSide == 0 && pointers % kSide == 0;
    Outputs squares = out, rest = out;
    squares.num_rows = rest.first_row = packed ? out.num_rows / kSide * kSide : 0;
    launch_rows<true>(from, squares, stream);
    launch_rows<false>(from, rest, stream);
}

}  // namespace argosy::kernels::cuda
