// Products of float8 matrices with the sums of a Hopper GPU. An element of float8 is packed as two arrays:
// its number in fp32 and its exponent in a byte.
//
// For a row of A and 64 columns of B, 32 products at a time: the largest exponents are maxima of sums of
// bytes. A product in fp32, times 2^(13 - largest exponent), is exact, and its conversion to an integer
// rounds it towards zero. Sums of these integers have at most 21 bits.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector.h"
#include "kernels/scratch.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

constexpr int64_t kTerms = 32;           // products in one sum of the hardware
constexpr int64_t kPromotedTerms = 128;  // products before a sum is added in fp32
constexpr int64_t kDepth = 512;          // a slab of k; a multiple of both
constexpr int64_t kRows = 256, kColumns = 64;
constexpr int kFractionBits = 13;
constexpr int8_t kZeroExponent = -64;  // below that of every product and of every sum, also twice

using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
constexpr int kVectors = 4;  // of sums in registers
constexpr int64_t kGroup = kVectors * kLanes;
using Exponents = int8_t __attribute__((vector_size(kGroup)));
static_assert(kColumns % kGroup == 0 && kDepth % kPromotedTerms == 0 && kPromotedTerms % kTerms == 0);

float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// The numbers of the 256 elements of a type. NaN and infinities have `nan`, else 0.
struct Decoded {
    float number[256], nan[256];
    int8_t exponent[256];

    explicit Decoded(Float8Type type) {
        const int fraction_bits = type == Float8Type::E4M3 ? 3 : 2, bias = type == Float8Type::E4M3 ? 7 : 15;
        const int first_nonfinite = type == Float8Type::E4M3 ? 0x7F : 0x7C;
        for (int code = 0; code < 256; ++code) {
            const int size = code & 0x7F, field = size >> fraction_bits;
            const int fraction = size - (field << fraction_bits) + ((field > 0) << fraction_bits);
            const int power = (field > 0 ? field : 1) - bias;
            const float unit = as_float(static_cast<uint32_t>(127 + power - fraction_bits) << 23);
            const bool finite = size < first_nonfinite;
            number[code] = finite ? unit * static_cast<float>(code < 128 ? fraction : -fraction) : 0;
            nan[code] = finite ? 0 : __builtin_nanf("");
            exponent[code] = static_cast<int8_t>(finite && fraction > 0 ? power : kZeroExponent);
        }
    }
};

/// The packed operands of a block of C and a slab of k. Missing rows, columns and k are zeros.
struct Slab {
    float a[kRows][kDepth];
    int8_t a_exponents[kRows][kDepth];
    float a_nan[kRows];  // NaN if one is in the row, else 0
    alignas(64) float b[kDepth][kColumns];
    alignas(64) int8_t b_exponents[kDepth][kColumns];
    float b_nan[kColumns];
    int64_t depth;  // a multiple of kTerms
};

void pack_a(Slab& slab, const Operand<uint8_t>& from, const Decoded& decoded, int64_t rows, int64_t k) {
    for (int64_t row = 0; row < rows; ++row) {
        float nan = 0;
        for (int64_t i = 0; i < slab.depth; ++i) {
            const int code = i < k ? from.data[row * from.lane_stride + i * from.k_stride] : 0;
            slab.a[row][i] = decoded.number[code];
            slab.a_exponents[row][i] = decoded.exponent[code];
            nan += decoded.nan[code];
        }
        slab.a_nan[row] = nan;
    }
}

void pack_b(Slab& slab, const Operand<uint8_t>& from, const Decoded& decoded, int64_t columns, int64_t k) {
    for (int64_t column = 0; column < kColumns; ++column) {
        float nan = 0;
        for (int64_t i = 0; i < slab.depth; ++i) {
            const int code =
                i < k && column < columns ? from.data[column * from.lane_stride + i * from.k_stride] : 0;
            slab.b[i][column] = decoded.number[code];
            slab.b_exponents[i][column] = decoded.exponent[code];
            nan += decoded.nan[code];
        }
        slab.b_nan[column] = nan;
    }
}

template <class Vector>
Vector load_vector(const void* from) {
    Vector loaded;
    __builtin_memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

/// The largest exponents of the products of a row and kGroup columns.
void find_largest(const Slab& slab, int64_t row, int64_t first, int64_t column, int8_t* exponents) {
    Exponents largest = Exponents{} + static_cast<int8_t>(2 * kZeroExponent);
    for (int64_t i = first; i < first + kTerms; ++i) {
        const Exponents sum = load_vector<Exponents>(slab.b_exponents[i] + column) + slab.a_exponents[row][i];
        largest = sum > largest ? sum : largest;
    }
    __builtin_memcpy(exponents, &largest, sizeof largest);
}

/// Adds 32 products to the sums of a row in kGroup columns.
void add_products(const Slab& slab, int64_t row, int64_t first, int64_t column, float* sums) {
    using NarrowExponents = int8_t __attribute__((vector_size(kLanes)));
    int8_t exponents[kGroup];
    find_largest(slab, row, first, column, exponents);
    Floats scale[kVectors], unit[kVectors];
    Ints total[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        // 1. the largest exponent, that of the sum so far included
        const Floats sum = load_vector<Floats>(sums + v * kLanes);
        const Ints of_sum = ((Ints)sum >> 23 & 0xFF) - 127;
        Ints largest = __builtin_convertvector(load_vector<NarrowExponents>(exponents + v * kLanes), Ints);
        largest = of_sum > largest ? of_sum : largest;
        largest = largest < kZeroExponent ? Ints{} + kZeroExponent : largest;
        scale[v] = (Floats)((127 + kFractionBits - largest) << 23);
        unit[v] = (Floats)((127 - kFractionBits + largest) << 23);
        // 2. the sum so far as an integer
        total[v] = __builtin_convertvector(sum * scale[v], Ints);
    }
    // 3. the products as integers
    for (int64_t i = first; i < first + kTerms; ++i) {
        const float a = slab.a[row][i];
        const float* b = slab.b[i] + column;
        for (int v = 0; v < kVectors; ++v) {
            const Floats product = a * scale[v] * load_vector<Floats>(b + v * kLanes);
            total[v] += __builtin_convertvector(product, Ints);
        }
    }
    // 4. 14 significant bits of the total
    for (int v = 0; v < kVectors; ++v) {
        const Floats sum = __builtin_convertvector(total[v], Floats) * unit[v];
        const Ints kept = (Ints)sum & ~((1 << (23 - kFractionBits)) - 1);
        __builtin_memcpy(sums + v * kLanes, &kept, sizeof kept);
    }
}

/// sums = a row of the slab's products in 64 columns, added to `sums`.
void multiply_row(const Slab& slab, int64_t row, bool fast, float* sums) {
    alignas(64) float chain[kColumns] = {};
    for (int64_t first = 0; first < slab.depth; first += kTerms) {
        for (int64_t column = 0; column < kColumns; column += kGroup) {
            add_products(slab, row, first, column, (fast ? sums : chain) + column);
        }
        const int64_t end = first + kTerms;
        if (fast || (end % kPromotedTerms != 0 && end < slab.depth)) continue;
        for (int64_t i = 0; i < kColumns; ++i) {
            sums[i] += chain[i];
            chain[i] = 0;
        }
    }
}

/// Adds the products of the slab to a block of C, which begins with them if `begins`.
void multiply_block(const Slab& slab, int64_t rows, int64_t columns, bool fast, bool begins, float* c,
                    int64_t c_stride) {
    for (int64_t row = 0; row < rows; ++row) {
        float* to = c + row * c_stride;
        alignas(64) float sums[kColumns] = {};
        float nan[kColumns] = {};  // also keeps those of the slabs before
        for (int64_t i = 0; i < columns; ++i) {
            const float before = begins ? 0 : to[i];
            sums[i] = before == before ? before : 0;
            nan[i] = slab.a_nan[row] + slab.b_nan[i] + before * 0;
        }
        multiply_row(slab, row, fast, sums);
        for (int64_t i = 0; i < columns; ++i) to[i] = sums[i] + nan[i];
    }
}

}  // namespace

void hopper_matmul(const HopperMatmul& args) {
    Slab& slab = *static_cast<Slab*>(scratch(sizeof(Slab)));
    const Decoded a_decoded(args.a.type), b_decoded(args.b.type);
    const Operand<uint8_t>&a = args.a.elements, &b = args.b.elements;
    for (int64_t row = args.row_begin; row < args.row_end; row += kRows) {
        const int64_t rows = smaller(kRows, args.row_end - row);
        for (int64_t first = 0; first == 0 || first < args.k; first += kDepth) {
            const int64_t k = smaller(kDepth, args.k - first);
            slab.depth = (k + kTerms - 1) / kTerms * kTerms;
            pack_a(slab, {a.data + row * a.lane_stride + first * a.k_stride, a.lane_stride, a.k_stride},
                   a_decoded, rows, k);
            for (int64_t column = args.column_begin; column < args.column_end; column += kColumns) {
                const int64_t columns = smaller(kColumns, args.column_end - column);
                pack_b(slab,
                       {b.data + column * b.lane_stride + first * b.k_stride, b.lane_stride, b.k_stride},
                       b_decoded, columns, k);
                multiply_block(slab, rows, columns, args.fast, first == 0,
                               args.c + row * args.c_stride + column, args.c_stride);
            }
        }
    }
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
