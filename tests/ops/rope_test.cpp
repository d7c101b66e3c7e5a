#include "ops/rope.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/numerics.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

struct RopeSizes {
    int64_t sequences, seq_len, heads, head_dim, rotary_dim = head_dim;
};
constexpr RopeSizes kRopeSizes[] = {{1, 1, 1, 2},  {2, 3, 1, 2}, {3, 7, 5, 6},    {1, 129, 2, 64},
                                    {2, 3, 1, 38}, {0, 4, 3, 8}, {2, 5, 3, 7, 4}, {3, 7, 4, 64, 48}};

/// The reference rotates each pair by `direction` * position * frequency, and copies the other elements.
at::Tensor turned(const at::Tensor& x, const RopeSizes& sizes, double direction) {
    const at::Tensor in = x.to(at::kDouble).cpu().contiguous(), out = at::empty(in.sizes(), at::kDouble);
    const std::vector<double> frequency = rotation_frequencies(sizes.rotary_dim);
    const int64_t half = sizes.rotary_dim / 2;
    for (int64_t token = 0; token < x.size(0); ++token) {
        for (int64_t head = 0; head < sizes.heads; ++head) {
            const int64_t first = (token * sizes.heads + head) * sizes.head_dim;
            const double* a = in.const_data_ptr<double>() + first;
            double* b = out.mutable_data_ptr<double>() + first;
            std::copy(a + 2 * half, a + sizes.head_dim, b + 2 * half);
            for (int64_t i = 0; i < half; ++i) {
                const double angle = direction * static_cast<double>(token % sizes.seq_len) * frequency[i];
                b[i] = a[i] * std::cos(angle) - a[i + half] * std::sin(angle);
                b[i + half] = a[i + half] * std::cos(angle) + a[i] * std::sin(angle);
            }
        }
    }
    return out.to(x.device());
}

at::Tensor rope(const at::Tensor& x, const RopeTable& table) {
    const at::Tensor y = at::empty_like(x);
    write_rope(y, x, table);
    return y;
}
at::Tensor rope_backward(const at::Tensor& dy, const RopeTable& table) {
    const at::Tensor dx = at::empty_like(dy);
    write_rope_backward(dx, dy, table);
    return dx;
}

class RopeTest : public OpsTest {
  protected:
    RopeTable table(const RopeSizes& sizes) const {
        RopeTable made = make_rope_table(rotation_frequencies(sizes.rotary_dim), 1, sizes.seq_len,
                                         placed(accumulation_type(GetParam().type)));
        made.head_dim = sizes.head_dim;
        return made;
    }
    at::Tensor rows(const RopeSizes& sizes) {
        return normal({sizes.sequences * sizes.seq_len, sizes.heads * sizes.head_dim});
    }
};

TEST_P(RopeTest, RotatesEachPairByItsPositionTimesItsFrequency) {
    for (const RopeSizes& sizes : kRopeSizes) {
        const at::Tensor x = rows(sizes);
        EXPECT_TRUE(right(rope(x, table(sizes)), turned(x, sizes, 1)));
        EXPECT_TRUE(right(rope_backward(x, table(sizes)), turned(x, sizes, -1)));
    }
}

// Positions in any order, as documents and the parts of context parallelism have them: each row is rotated as
// the row of that position in a whole sequence is.
TEST_P(RopeTest, PositionsMayBeGiven) {
    const RopeSizes whole{1, 129, 3, 64};
    const std::vector<int64_t> places = {0, 1, 2, 0, 0, 1, 128, 64, 127, 5, 6};
    const at::Tensor x = rows(whole), rotated = rope(x, table(whole)), back = rope_backward(x, table(whole));
    const at::Tensor positions = at::tensor(places, at::kLong).to(x.device());
    const at::Tensor some = x.index_select(0, positions), y = at::empty_like(some);
    write_rope(y, some, table(whole), positions);
    EXPECT_TRUE(identical(y, rotated.index_select(0, positions)));
    write_rope_backward(y, some, table(whole), positions);
    EXPECT_TRUE(identical(y, back.index_select(0, positions)));
}

TEST_P(RopeTest, BackwardIsTheAdjoint) {
    for (const RopeSizes& sizes : kRopeSizes) {
        const at::Tensor x = rows(sizes), dy = rows(sizes);
        const at::Tensor forward = rope(x, table(sizes)).to(at::kDouble).mul(dy);
        const at::Tensor backward = rope_backward(dy, table(sizes)).to(at::kDouble).mul(x);
        const double scale = forward.abs().sum().item<double>();
        EXPECT_NEAR(forward.sum().item<double>(), backward.sum().item<double>(),
                    GetParam().tolerance * scale);
    }
}

TEST_P(RopeTest, RotatesInPlace) {
    for (const RopeSizes& sizes : kRopeSizes) {
        const at::Tensor x = rows(sizes), y = x.clone(), back = x.clone();
        write_rope(y, y, table(sizes));
        write_rope_backward(back, back, table(sizes));
        EXPECT_TRUE(identical(y, rope(x, table(sizes))));
        EXPECT_TRUE(identical(back, rope_backward(x, table(sizes))));
    }
}

// The rotated columns are part of a wider matrix whose other columns do not change; input and output have
// different strides.
TEST_P(RopeTest, ColumnsOfAMatrix) {
    const RopeSizes& sizes = kRopeSizes[2];
    const int64_t size = sizes.heads * sizes.head_dim;
    const at::Tensor wide = normal({sizes.sequences * sizes.seq_len, 2 * size + 3}), before = wide.clone();
    const auto middle = [&](const at::Tensor& of) { return of.narrow(1, 2, size); };
    const at::Tensor expected = rope(middle(before).contiguous(), table(sizes));
    write_rope(middle(wide), middle(wide), table(sizes));
    EXPECT_TRUE(identical(middle(wide).contiguous(), expected));
    EXPECT_TRUE(identical(wide.narrow(1, 0, 2).contiguous(), before.narrow(1, 0, 2).contiguous()));
    EXPECT_TRUE(identical(wide.narrow(1, size + 2, size + 1).contiguous(),
                          before.narrow(1, size + 2, size + 1).contiguous()));
    const at::Tensor dense = middle(before).contiguous();
    write_rope_backward(middle(wide), dense, table(sizes));
    EXPECT_TRUE(identical(middle(wide).contiguous(), rope_backward(dense, table(sizes))));
}

TEST_P(RopeTest, TableIsMadeInFp64) {
    const double scale = 1.25;
    const RopeTable made = make_rope_table({1}, scale, 100001, placed(accumulation_type(GetParam().type)));
    EXPECT_EQ(made.cos.sizes(), (at::IntArrayRef{100001, 1}));
    EXPECT_NEAR(made.cos[100000][0].item<double>(), scale * std::cos(100000.0), 1e-7);
    EXPECT_NEAR(made.sin[100000][0].item<double>(), scale * std::sin(100000.0), 1e-7);
}

ARGOSY_FOR_EACH_VARIANT(RopeTest);

}  // namespace
}  // namespace argosy::ops
