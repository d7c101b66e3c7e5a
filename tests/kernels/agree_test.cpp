// Every table computes the same as the portable one, at all sizes: also rows whose length is no multiple of
// the lanes, and sums over such rows. (tests/ops compares the tables with fp64; this suite also runs tables
// that no program would choose.)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kernels/rounded_sum.h"
#include "kernels/tables.h"

namespace argosy::kernels {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kSizes[] = {1, 7, 8, 15, 16, 17, 31, 33, 70, 1024, 1030, 2059};

template <class T>
class Computed {
  public:
    Computed(const Table& table, int64_t size) : kernels_(table.of<T>()), size_(size) {
        const auto x = random(), other = random(), weight = random(), residual = random();
        norms(x, other, weight, residual);
        activations(x, other, residual);
        losses(x);
        sums(x);
        if (size % 2 == 0) rotations(x);
    }
    const std::vector<float>& all() const { return all_; }

  private:
    std::vector<T> random() {
        std::normal_distribution<float> normal;
        std::vector<float> wide(kRows * size_);
        for (float& x : wide) x = normal(engine_);
        std::vector<T> narrow(wide.size());
        kernels_.narrow({std::ssize(wide), wide.data(), narrow.data()});
        return narrow;
    }
    void keep(const std::vector<T>& found) {
        std::vector<float> wide(found.size());
        kernels_.widen({std::ssize(found), found.data(), wide.data()});
        keep_floats(wide);
    }
    void keep_floats(const std::vector<float>& found) { all_.insert(all_.end(), found.begin(), found.end()); }

    void norms(const std::vector<T>& x, const std::vector<T>& dy, const std::vector<T>& weight,
               const std::vector<T>& residual) {
        std::vector<T> y(x.size()), dx(x.size());
        std::vector<float> inverse(kRows), dweight(size_);
        for (const float offset : {0.0F, 1.0F}) {
            RmsNorm<T> forward = {kRows, size_, x.data(), weight.data(), 0.1F, y.data(), inverse.data()};
            RmsNormBackward<T> backward = {kRows,           size_,         dy.data(),
                                           x.data(),        weight.data(), inverse.data(),
                                           residual.data(), dx.data(),     dweight.data()};
            forward.weight_offset = backward.weight_offset = offset;
            kernels_.rms_norm(forward);
            kernels_.rms_norm_backward(backward);
            keep(y), keep(dx), keep_floats(inverse), keep_floats(dweight);
        }
    }
    void activations(const std::vector<T>& gate, const std::vector<T>& up, const std::vector<T>& dy) {
        std::vector<T> y(gate.size()), dgate(gate.size()), dup(gate.size());
        for (const Activation activation : {Activation::Silu, Activation::GeluTanh}) {
            kernels_.glu({activation, kRows, size_, gate.data(), up.data(), size_, y.data()});
            kernels_.glu_backward({activation, kRows, size_, dy.data(), gate.data(), up.data(), dgate.data(),
                                   dup.data(), size_});
            keep(y), keep(dgate), keep(dup);
        }
    }
    void losses(std::vector<T> logits) {
        const std::vector<int64_t> targets = {size_ / 2, -1, size_ - 1};
        const float scale = 0.5F;
        std::vector<float> maxima(kRows), exponentials(kRows), target_logits(kRows);
        kernels_.softmax_sums({kRows, size_, 0, logits.data(), targets.data(), maxima.data(),
                               exponentials.data(), target_logits.data()});
        kernels_.cross_entropy_gradient(
            {kRows, size_, 0, targets.data(), maxima.data(), exponentials.data(), &scale, logits.data()});
        keep_floats(maxima), keep_floats(exponentials), keep_floats(target_logits), keep(logits);
    }
    void sums(const std::vector<T>& x) {
        const std::vector<int64_t> tokens = {1, 5, 1};
        std::vector<float> total(size_), gradient(2 * size_);
        std::vector<T> rows(x.size());
        kernels_.sum_rows({kRows, size_, size_, x.data(), total.data()});
        kernels_.embedding_gradient({kRows, size_, 0, 2, size_, tokens.data(), x.data(), gradient.data()});
        kernels_.embedding({kRows, size_, 0, 2, tokens.data(), x.data(), rows.data()});
        keep_floats(total), keep_floats(gradient), keep(rows);
    }
    void rotations(std::vector<T> x) {
        const std::vector<float> angles(2 * (size_ / 2), 0.6F);
        kernels_.rope({kRows, 1, size_ / 2, 1, 2, Rotation::Forward, angles.data(), angles.data(), x.data(),
                       size_, x.data(), size_});
        keep(x);
        // A part of a head.
        std::vector<T> y(x.size());
        kernels_.rope({kRows, 1, size_ / 4, 1, 2, Rotation::Backward, angles.data(), angles.data(), x.data(),
                       size_, y.data(), size_, nullptr, size_ - 2 * (size_ / 4)});
        keep(y);
    }

    const TypedKernels<T>& kernels_;
    int64_t size_;
    std::mt19937 engine_{3};
    std::vector<float> all_;
};

class AgreeTest : public TableTest {
  protected:
    template <class T>
    void check(double tolerance) {
        for (const int64_t size : kSizes) {
            const Computed<T> found(*GetParam(), size), expected(*available_tables()[0], size);
            ASSERT_EQ(found.all().size(), expected.all().size());
            double worst = 0;
            for (size_t i = 0; i < found.all().size(); ++i) {
                const double right = expected.all()[i];
                worst = std::max(worst, std::abs(found.all()[i] - right) / std::max(1.0, std::abs(right)));
            }
            EXPECT_LE(worst, tolerance) << "size " << size;
        }
    }
};

TEST_P(AgreeTest, WithThePortableTable) {
    check<float>(1e-5);
    check<BFloat16>(1.0 / 128);
}

TEST_P(AgreeTest, SquaredNormsHaveTheSameBits) {
    std::vector<float> x(1000);
    std::mt19937 engine(9);
    for (float& each : x)
        each = std::ldexp(static_cast<float>(engine() % 1000), static_cast<int>(engine() % 40));
    for (const int64_t count : {0, 1, 15, 16, 17, 999, 1000}) {
        EXPECT_EQ(GetParam()->squared_norm({count, x.data()}),
                  available_tables()[0]->squared_norm({count, x.data()}))
            << count;
    }
}

TEST_P(AgreeTest, SquaredNormsOfBFloat16AreThoseOfTheirFloats) {
    std::vector<BFloat16> narrow(1000);
    std::vector<float> wide(narrow.size());
    std::mt19937 engine(9);
    for (size_t i = 0; i < narrow.size(); ++i) {
        narrow[i] = {static_cast<uint16_t>(engine() % 0x7f00)};
        wide[i] = widened(narrow[i]);
    }
    for (const int64_t count : {0, 1, 15, 16, 17, 999, 1000}) {
        EXPECT_EQ(GetParam()->squared_norm({count, nullptr, narrow.data()}),
                  GetParam()->squared_norm({count, wide.data()}))
            << count;
    }
}

TEST_P(AgreeTest, SumsInBFloat16HaveTheBitsOfTheReference) {
    std::mt19937 engine(9);
    std::normal_distribution<float> normal;
    uint64_t first_number = uint64_t{5} << 32;
    for (const int64_t size : {1, 7, 8, 9, 500, 511, 512, 513, 1030, 2059}) {
        std::vector<BFloat16> sum(size);
        std::vector<float> term(size);
        for (int step = 0; step < 4; ++step, ++first_number) {
            for (float& each : term) each = std::ldexp(normal(engine), 4 * step - 8);
            const AddRounded args{.size = size,
                                  .first_element = 0xfffffff3,
                                  .first_number = &first_number,
                                  .number = 7,
                                  .rounding_key = {3, 0xdeadbeef},
                                  .accumulate = step > 0,
                                  .term = term.data(),
                                  .sum = sum.data()};
            std::vector<uint16_t> expected, found;
            for (int64_t i = 0; i < size; ++i) {
                expected.push_back(expected_sum({args, size, 0}, i).bits);
            }
            GetParam()->add_rounded(args);
            for (const BFloat16 each : sum) found.push_back(each.bits);
            ASSERT_EQ(found, expected) << size << " elements, step " << step;
        }
    }
}

TEST_P(AgreeTest, PassesTheTestOfNewInstructions) {
    EXPECT_TRUE(multiply_alike(*GetParam(), *available_tables()[0]));
}

TEST(MultiplyAlike, ShowsOneWrongElement) {
    Table broken = *available_tables()[0];
    broken.bf16.matmul_to_float = [](const Matmul<BFloat16, float>& args) {
        available_tables()[0]->bf16.matmul_to_float(args);
        args.c[args.row_end * args.c_stride - 1] += 1;
    };
    EXPECT_FALSE(multiply_alike(broken, *available_tables()[0]));
}

TEST(MultiplyAlike, ShowsAFactorThatIsReadTransposed) {
    Table broken = *available_tables()[0];
    broken.bf16.matmul_to_float = [](const Matmul<BFloat16, float>& args) {
        Product<BFloat16> product = args.products[0];
        std::swap(product.a.lane_stride, product.a.k_stride);
        Matmul<BFloat16, float> wrong = args;
        wrong.products = &product;
        wrong.row_end = 1;
        available_tables()[0]->bf16.matmul_to_float(wrong);
    };
    EXPECT_FALSE(multiply_alike(broken, *available_tables()[0]));
}

/// The times of a product in bf16 whose operands stay in cache, by table: the best of some, taken in turns.
std::vector<double> seconds_of_product(std::span<const Table* const> tables) {
    constexpr int64_t kSize = 256;
    const std::vector<BFloat16> ones(kSize * kSize, BFloat16{0x3F80});
    const Product<BFloat16> product{{ones.data(), kSize, 1}, {ones.data(), kSize, 1}, kSize};
    std::vector<BFloat16> c(kSize * kSize);
    std::vector<double> best(tables.size(), 1e9);
    for (int i = 0; i < 30; ++i) {
        for (size_t table = 0; table < tables.size(); ++table) {
            const double start = seconds_now();
            tables[table]->bf16.matmul({&product, 1, 0, kSize, 0, kSize, c.data(), kSize});
            best[table] = std::min(best[table], seconds_now() - start);
        }
    }
    return best;
}

TEST(AvailableTables, MultiplyFastestInTheLast) {
    const std::vector<double> seconds = seconds_of_product(available_tables());
    for (size_t table = 0; table < seconds.size(); ++table)
        EXPECT_LT(seconds.back(), 1.3 * seconds[table]) << available_tables()[table]->name;
}

ARGOSY_FOR_EACH_TABLE(AgreeTest);

}  // namespace
}  // namespace argosy::kernels
