// Casts to float8 on GPUs, which write a matrix, its transpose, or both: 2 bytes read and 1 or 2 written per
// element of bf16. A tile has whole blocks, so their scales are found in the same pass.
#include "kernels/float8.h"

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/tiles.cuh"

namespace argosy::kernels::cuda {
namespace {

/// Which elements of a square share a factor. Squares begin at multiples of kSide, and so do groups, unless
/// they have one row or one column.
enum class Sharing { All, Row, Column };

/// The bytes of one row of a square.
template <Float8Type kType, Sharing kSharing, class T>
__device__ uint2 cast_row(const Part<T>& x, int row, const Floats<kSide>& factors) {
    auto numbers = widened(x);
#pragma unroll
    for (int k = 0; k < kSide; ++k) {
        numbers[k] *= factors[kSharing == Sharing::All ? 0 : kSharing == Sharing::Row ? row : k];
    }
    const auto rounded = [&](int k) {
        return kType == Float8Type::E4M3 ? round_to_e4m3(numbers[k], numbers[k + 1])
                                         : round_to_e5m2(numbers[k], numbers[k + 1]);
    };
    return {rounded(0) | rounded(2) << 16, rounded(4) | rounded(6) << 16};
}

template <class T, Float8Type kType, Sharing kSharing>
struct CastBytes {
    using Element = T;
    static constexpr const char* kName = "cast_to_float8";
    static constexpr bool kFindsScales = false;
    CastToFloat8<T> args;

    __device__ const T* begin() const { return args.matrix.x; }
    __device__ int64_t stride() const { return args.matrix.row_stride; }

    /// The factors of a square's rows or columns.
    template <bool kPacked>
    __device__ Floats<kSide> factors(const Square& square, const Part<T> (&)[kSide]) const {
        Floats<kSide> factors = {};
        if (square.is_empty()) return factors;
        if constexpr (kSharing == Sharing::All) {
            factors[0] = *args.factors;
        } else if constexpr (kSharing == Sharing::Row) {
            const float* from = args.factors + square.row * args.factor_stride;
#pragma unroll
            for (int i = 0; i < kSide; ++i, from += args.factor_stride) {
                if (kPacked || i < square.num_rows) factors[i] = *from;
            }
        } else if constexpr (kPacked) {
            factors = load<kSide>(args.factors + square.column);
        } else {
#pragma unroll
            for (int k = 0; k < kSide; ++k) {
                if (k < square.num_columns) factors[k] = args.factors[square.column + k];
            }
        }
        return factors;
    }

    __device__ uint2 bytes(const Part<T>& x, int row, const Floats<kSide>& factors) const {
        return cast_row<kType, kSharing>(x, row, factors);
    }
};

/// The scale of a block from its largest magnitude, as kernels::CastBlocks. The type's largest number, 448,
/// is 1.75 * 2^8. A magnitude of up to 224 times 2^-149 over 448 is 0 in fp32.
struct ScaleOfBlock {
    uint32_t exponent;  // as E8M0 stores it

    __device__ ScaleOfBlock(uint32_t largest, bool round_up) {
        constexpr uint32_t kMantissaOf448 = 0x600000, kMaxOfZero = 224;
        const int field = static_cast<int>(largest >> 23) - 8;
        const int up = (largest & 0x7fffff) > kMantissaOf448 ? 1 : 0;
        const int least = largest > kMaxOfZero ? 1 : 0;
        exponent = round_up ? (field + up > least ? field + up : least) : (field > 0 ? field : 0);
        if (largest >= 0x7f800000) exponent = 255;  // NaN or infinity
    }
    /// The reciprocal of the scale, at most 2^126.
    __device__ float factor() const {
        const uint32_t inverse = 254 - exponent;
        return __uint_as_float((inverse == 254 ? 253 : inverse) << 23);
    }
};

/// Blocks of 32 or 128 elements of a row (Sharing::Row) or of a column, or tiles (Sharing::All).
template <class T, Sharing kSharing>
struct CastBlockBytes {
    using Element = T;
    static constexpr const char* kName = "cast_blocks";
    static constexpr bool kFindsScales = true;
    CastBlocks<T> args;

    __device__ const T* begin() const { return args.matrix.x; }
    __device__ int64_t stride() const { return args.matrix.row_stride; }

    /// The factors of a square's rows or columns. All threads of a block call it together.
    template <bool kPacked>
    __device__ Floats<kSide> factors(const Square& square, Part<T> (&loaded)[kSide]) const {
        uint32_t largest[kSide] = {};
#pragma unroll
        for (int i = 0; i < kSide; ++i) {
            const auto numbers = widened(loaded[i]);
#pragma unroll
            for (int k = 0; k < kSide; ++k) {
                uint32_t& to = largest[kSharing == Sharing::Row ? i : kSharing == Sharing::Column ? k : 0];
                to = larger(to, magnitude_of(numbers[k]));
            }
        }
#pragma unroll
        for (Part<T>& each : loaded) keep_narrow(each);
        join(largest);
        uint8_t* exponents = exponents_of(square);
        Floats<kSide> factors = {};
#pragma unroll
        for (int i = 0; i < (kSharing == Sharing::All ? 1 : kSide); ++i) {
            const ScaleOfBlock scale(largest[i], args.round_up);
            factors[i] = scale.factor();
            if (exponents == nullptr) continue;
            const int count = kSharing == Sharing::Row ? square.num_rows : square.num_columns;
            if (kPacked || i < count) *exponents = static_cast<uint8_t>(scale.exponent);
            exponents += kSharing == Sharing::Row ? args.exponent_stride : 1;
        }
        return factors;
    }

    __device__ uint2 bytes(const Part<T>& x, int row, const Floats<kSide>& factors) const {
        return cast_row<Float8Type::E4M3, kSharing>(x, row, factors);
    }

  private:
    /// Replaces the largest magnitudes of a square's rows, columns or elements by those of the blocks.
    __device__ void join(uint32_t (&largest)[kSide]) const {
        const auto over_lanes = [&](uint32_t& each, int first, int last) {
            for (int lanes = first; lanes <= last; lanes *= 2)
                each = larger(each, __shfl_xor_sync(kAllLanes, each, lanes));
        };
        if constexpr (kSharing == Sharing::Row) {
            const int last = static_cast<int>(args.matrix.group_columns) / kSide / 2;
#pragma unroll
            for (int i = 0; i < kSide; ++i) over_lanes(largest[i], 1, last);
        } else if constexpr (kSharing == Sharing::Column) {
            join_columns(largest);
        } else {
            __shared__ Shared<uint32_t, kTileWarps> parts;
            over_lanes(largest[0], 1, kWarp / 2);
            if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = largest[0];
            __syncthreads();
#pragma unroll
            for (int warp = 0; warp < kTileWarps; ++warp) largest[0] = larger(largest[0], parts[warp]);
        }
    }

    /// A warp has two rows of squares, and a block of a column the rows of some warps.
    __device__ void join_columns(uint32_t (&largest)[kSide]) const {
        __shared__ Shared<uint32_t, kTileWarps * kTile> parts;
        const int warp = threadIdx.x / kWarp, column = threadIdx.x % kSquares * kSide;
#pragma unroll
        for (int k = 0; k < kSide; ++k) {
            largest[k] = larger(largest[k], __shfl_xor_sync(kAllLanes, largest[k], kSquares));
            if (threadIdx.x % kWarp < kSquares) parts[warp * kTile + column + k] = largest[k];
        }
        __syncthreads();
        const int warps = static_cast<int>(args.matrix.group_rows) / (kTile / kTileWarps);
        const uint32_t* at = &parts[warp / warps * warps * kTile + column];
#pragma unroll 1
        for (int i = 0; i < warps; ++i, at += kTile) {
#pragma unroll
            for (int k = 0; k < kSide; ++k) largest[k] = larger(largest[k], at[k]);
        }
    }

    /// Where the exponents of a square begin if it is the first one of its blocks; else null.
    __device__ uint8_t* exponents_of(const Square& square) const {
        const auto row = static_cast<uint32_t>(square.row), column = static_cast<uint32_t>(square.column),
                   rows = static_cast<uint32_t>(args.matrix.group_rows),
                   columns = static_cast<uint32_t>(args.matrix.group_columns);
        if (square.is_empty() || row % rows != 0 || column % columns != 0) return nullptr;
        return args.exponents + row / rows * args.exponent_stride + column / columns;
    }
};

struct PlainBytes {
    using Element = uint8_t;
    static constexpr const char* kName = "transpose_bytes";
    static constexpr bool kFindsScales = false;
    const uint8_t* from;
    int64_t row_stride;

    struct NoFactors {};
    __device__ const uint8_t* begin() const { return from; }
    __device__ int64_t stride() const { return row_stride; }
    template <bool kPacked>
    __device__ NoFactors factors(const Square&, const Part<uint8_t> (&)[kSide]) const {
        return {};
    }
    __device__ uint2 bytes(const Part<uint8_t>& x, int, NoFactors) const { return {x.words[0], x.words[1]}; }
};

template <Float8Type kType, class T>
void cast_to(const CastToFloat8<T>& args, const Outputs& out, GpuStream stream) {
    const Grouped<T>& matrix = args.matrix;
    const bool packed = in_packs<T>(matrix.row_stride, matrix.x);
    if (matrix.group_columns == 1 && (matrix.group_rows > 1 || matrix.row_size > 1)) {
        launch_tiles(CastBytes<T, kType, Sharing::Column>{args}, out,
                     packed && in_packs<float>(args.factor_stride, args.factors), stream);
    } else if (matrix.group_rows == 1) {
        launch_tiles(CastBytes<T, kType, Sharing::Row>{args}, out, packed, stream);
    } else {
        launch_tiles(CastBytes<T, kType, Sharing::All>{args}, out, packed, stream);
    }
}

template <Sharing kSharing, class T>
void cast_blocks_to(const CastBlocks<T>& args, const Outputs& out, GpuStream stream) {
    launch_tiles(CastBlockBytes<T, kSharing>{args}, out, in_packs<T>(args.matrix.row_stride, args.matrix.x),
                 stream);
}

}  // namespace

template <class T>
void cast_blocks(const CastBlocks<T>& args, const TransposedFloat8& transposed, GpuStream stream) {
    const Grouped<T>& matrix = args.matrix;
    const Outputs out = {matrix.num_rows,   matrix.row_size,   args.values,
                         args.value_stride, transposed.values, transposed.stride};
    if (matrix.group_rows == 1) return cast_blocks_to<Sharing::Row>(args, out, stream);
    if (matrix.group_columns == 1) return cast_blocks_to<Sharing::Column>(args, out, stream);
    cast_blocks_to<Sharing::All>(args, out, stream);
}

template <class T>
void cast_to_float8(const CastToFloat8<T>& args, const TransposedFloat8& transposed, GpuStream stream) {
    const Outputs out = {args.matrix.num_rows, args.matrix.row_size, args.values,
                         args.value_stride,    transposed.values,    transposed.stride};
    args.type == Float8Type::E4M3 ? cast_to<Float8Type::E4M3>(args, out, stream)
                                  : cast_to<Float8Type::E5M2>(args, out, stream);
}

void transpose_bytes(const TransposeBytes& args, GpuStream stream) {
    const Outputs out = {args.num_rows,          args.row_size,         nullptr, 0,
                         args.transposed.values, args.transposed.stride};
    const bool packed =
        (reinterpret_cast<uintptr_t>(args.from) | static_cast<uintptr_t>(args.row_stride)) % kSide == 0;
    launch_tiles(PlainBytes{args.from, args.row_stride}, out, packed, stream);
}

template void cast_blocks(const CastBlocks<float>&, const TransposedFloat8&, GpuStream);
template void cast_blocks(const CastBlocks<BFloat16>&, const TransposedFloat8&, GpuStream);
template void cast_to_float8(const CastToFloat8<float>&, const TransposedFloat8&, GpuStream);
template void cast_to_float8(const CastToFloat8<BFloat16>&, const TransposedFloat8&, GpuStream);

}  // namespace argosy::kernels::cuda
