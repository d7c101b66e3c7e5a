// bf16 products with the tile of this compilation, against loops in fp64.
#include "kernels/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/tile.h"
#include "kernels/emulated_arithmetic.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

struct Matrix {
    std::vector<BFloat16> elements;
    Operand<BFloat16> operand;

    double at(int64_t lane, int64_t k) const {
        return widened(operand.data[lane * operand.lane_stride + k * operand.k_stride]);
    }
};

class MatmulTest : public ::testing::Test {
  protected:
    BFloat16 number() {
        const auto word = std::bit_cast<uint32_t>(std::normal_distribution<float>()(engine_));
        return {static_cast<uint16_t>(word >> 16)};
    }
    Matrix matrix(int64_t lanes, int64_t k, bool k_is_contiguous) {
        Matrix made;
        for (int64_t i = 0; i < lanes * k; ++i) made.elements.push_back(number());
        made.operand = {made.elements.data(), k_is_contiguous ? k : 1, k_is_contiguous ? 1 : lanes};
        return made;
    }

    /// All `products`: the result is added to, overwritten, and a sum with another matrix.
    void check(int64_t rows, int64_t columns, const std::vector<int64_t>& ks, bool a_by_k, bool b_by_k) {
        std::vector<Matrix> as, bs;
        std::vector<Product<BFloat16>> products;
        for (const int64_t k : ks) {
            as.push_back(matrix(rows, k, a_by_k));
            bs.push_back(matrix(columns, k, b_by_k));
            products.push_back({as.back().operand, bs.back().operand, k});
        }
        std::vector<float> wide(rows * columns, 3);
        std::vector<BFloat16> narrow(rows * columns, BFloat16{0x4040});  // 3 as well
        const auto count = static_cast<int64_t>(products.size());
        std::vector<float> another(rows * columns), scaled(rows * columns);
        const std::vector<float> addend(rows * (columns + 5), 7);
        matmul<BFloat16, float>(
            {products.data(), count, 0, rows, 0, columns, wide.data(), columns, wide.data(), columns});
        matmul<BFloat16, BFloat16>({products.data(), count, 0, rows, 0, columns, narrow.data(), columns});
        matmul<BFloat16, float>({products.data(), count, 0, rows, 0, columns, another.data(), columns,
                                 addend.data(), columns + 5});
        matmul<BFloat16, float>({.products = products.data(),
                                 .num_products = count,
                                 .row_end = rows,
                                 .column_end = columns,
                                 .c = scaled.data(),
                                 .c_stride = columns,
                                 .addend = addend.data(),
                                 .addend_stride = columns + 5,
                                 .bias = addend.data(),
                                 .factor = -0.5F,
                                 .addend_factor = 3});
        for (int64_t i = 0; i < rows * columns; ++i) {
            double sum = 0, magnitude = 0;
            for (size_t p = 0; p < ks.size(); ++p) {
                for (int64_t k = 0; k < ks[p]; ++k) {
                    const double term = as[p].at(i / columns, k) * bs[p].at(i % columns, k);
                    sum += term;
                    magnitude += std::abs(term);
                }
            }
            ASSERT_NEAR(wide[i], sum + 3, 1e-6 * (magnitude + 3)) << "element " << i;
            ASSERT_NEAR(another[i], sum + 7, 1e-6 * (magnitude + 7)) << "element " << i;
            ASSERT_NEAR(scaled[i], 28 - 0.5 * sum, 1e-6 * (magnitude + 28)) << "element " << i;
            ASSERT_NEAR(widened(narrow[i]), sum, std::abs(sum) / 256 + 1e-6 * magnitude) << "element " << i;
        }
    }

    std::mt19937 engine_{1};
};

TEST_F(MatmulTest, OddSizesInEveryOrientation) {
    for (int64_t i = 1; i <= 70; ++i) {
        check(i, 1 + i * 29 % 70, {1 + i * 43 % 70}, i % 2 == 0, i % 4 < 2);
    }
}

TEST_F(MatmulTest, SizesBeyondABlock) {
    check(801, 3, {5}, true, true);
    check(3, 530, {70}, false, true);
    check(33, 35, {1100}, true, false);
}

TEST_F(MatmulTest, SeveralProductsAreOneSum) {
    check(33, 35, {64, 7, 600}, true, false);
    check(5, 6, {}, true, true);
    check(5, 6, {0, 3, 0}, true, true);
}

TEST_F(MatmulTest, APartIsTheSameBitForBit) {
    const Matrix a = matrix(100, 600, true), b = matrix(90, 600, false);
    const Product<BFloat16> product{a.operand, b.operand, 600};
    std::vector<float> whole(100 * 90), part(100 * 90);
    matmul<BFloat16, float>({&product, 1, 0, 100, 0, 90, whole.data(), 90});
    for (const int64_t row : {0, 1, 37, 99}) {
        matmul<BFloat16, float>({&product, 1, row, 100, row / 2, 90, part.data(), 90});
        for (int64_t i = row; i < 100; ++i) {
            for (int64_t j = row / 2; j < 90; ++j) ASSERT_EQ(part[i * 90 + j], whole[i * 90 + j]);
        }
    }
}

}  // namespace
}  // namespace argosy::kernels::ARGOSY_VARIANT
