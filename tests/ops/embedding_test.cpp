#include "ops/embedding.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "layout/param_spec.h"
#include "ops/numerics.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

class EmbeddingTest : public OpsTest {
  protected:
    static constexpr int64_t kVocabulary = 11, kDim = 5;
    const at::Tensor tokens_ =
        at::tensor({3, 0, 10, 3, 3, 7, 10}, placed(at::kLong));  // including repeated tokens
    const at::Tensor table_ = normal({kVocabulary, kDim}), dx_ = normal({tokens_.size(0), kDim});
    const Differentiated oracle_ =
        differentiate([](const auto& in) { return in[0].index_select(0, in[1]); }, {table_, tokens_}, dx_);
};

TEST_P(EmbeddingTest, LooksUpRows) {
    EXPECT_TRUE(identical(embedding(table_, tokens_, 0), oracle_.value.to(GetParam().type)));
}

TEST_P(EmbeddingTest, GradientAddsRepeatedTokens) {
    at::Tensor sum = normal({kVocabulary, kDim});
    const at::Tensor expected = sum.to(at::kDouble) + oracle_.gradients[0];
    add_embedding_gradient(sum, dx_, tokens_, 0);
    EXPECT_TRUE(right(sum, expected));
}

TEST_P(EmbeddingTest, GradientMayBeWider) {
    at::Tensor sum = at::zeros({kVocabulary, kDim}, placed(at::kDouble));
    add_embedding_gradient(sum, dx_, tokens_, 0);
    EXPECT_TRUE(close(sum, oracle_.gradients[0], 1e-14)) << "sums in the type of its output";
}

// Gradients are kept as fp32 sums for every compute type except wider ones.
TEST_P(EmbeddingTest, GradientOfManyTokensAddsUpInTheAccumulationType) {
    const auto type = accumulation_type(GetParam().type);
    const at::Tensor tokens = random_.integers({999}, -1, kVocabulary + 1), dx = normal({999, 37});
    at::Tensor sum = random_.normal({kVocabulary, 37}, type), expected = sum.to(at::kDouble);
    const at::Tensor readable = tokens.cpu();
    const auto* token = readable.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < 999; ++i) {
        if (token[i] >= 0 && token[i] < kVocabulary) expected[token[i]] += dx[i].to(at::kDouble);
    }
    add_embedding_gradient(sum, dx, tokens, 0);
    EXPECT_TRUE(close(sum, expected, type == at::kDouble ? 1e-14 : 1e-6));
}

TEST_P(EmbeddingTest, StridedArguments) {
    const at::Tensor table = normal({kVocabulary, 9}).narrow(1, 2, kDim), dx = dx_.t().contiguous().t();
    const at::Tensor tokens = at::stack({tokens_, tokens_}, 1).select(1, 0);
    EXPECT_TRUE(identical(embedding(table, tokens, 2), embedding(table.contiguous(), tokens_, 2)));
    at::Tensor sum = at::zeros({kVocabulary, kDim}, placed(at::kFloat)), same = sum.clone();
    add_embedding_gradient(sum, dx, tokens, 0);
    add_embedding_gradient(same, dx_, tokens_, 0);
    EXPECT_TRUE(identical(sum, same));
}

TEST_P(EmbeddingTest, NoTokens) {
    const at::Tensor none = at::zeros({0}, placed(at::kLong));
    EXPECT_EQ(embedding(table_, none, 0).sizes(), (at::IntArrayRef{0, kDim}));
    at::Tensor sum = table_.clone();
    add_embedding_gradient(sum, normal({0, kDim}), none, 0);
    EXPECT_TRUE(identical(sum, table_));
}

// The table is split into ceil-chunks like the vocabulary: uneven, some of them empty.
TEST_P(EmbeddingTest, PiecesAddUpToTheWhole) {
    for (const int parts : {2, 3, 7, 13}) {
        at::Tensor y = at::zeros({tokens_.size(0), kDim}, placed(GetParam().type));
        const at::Tensor gradient = at::zeros({kVocabulary, kDim}, placed(GetParam().type));
        for (int part = 0; part < parts; ++part) {
            const auto [begin, size] = layout::chunk(kVocabulary, parts, part);
            y += embedding(table_.narrow(0, begin, size), tokens_, begin);
            at::Tensor piece = gradient.narrow(0, begin, size);
            add_embedding_gradient(piece, dx_, tokens_, begin);
        }
        EXPECT_TRUE(identical(y, oracle_.value.to(GetParam().type))) << parts;
        EXPECT_TRUE(right(gradient, oracle_.gradients[0])) << parts;
    }
}

// A NaN row of another token must not affect tokens that this piece does not hold.
TEST_P(EmbeddingTest, AbsentTokensAreZeroWhateverTheTableHolds) {
    const at::Tensor table = table_.clone();
    table[0].fill_(INFINITY);
    const at::Tensor y = embedding(table, at::tensor({20, -1, 2}, placed(at::kLong)), 0);
    EXPECT_TRUE(identical(y.narrow(0, 0, 2), at::zeros({2, kDim}, placed(GetParam().type))));
    EXPECT_TRUE(identical(y[2], table[2]));

    at::Tensor sum = at::zeros({kVocabulary, kDim}, placed(GetParam().type));
    add_embedding_gradient(sum, normal({2, kDim}).fill_(INFINITY), at::tensor({20, -1}, placed(at::kLong)),
                           0);
    EXPECT_EQ(sum.abs().max().item<double>(), 0);
}

ARGOSY_FOR_EACH_VARIANT(EmbeddingTest);

}  // namespace
}  // namespace argosy::ops
