#include "ops/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "expect_error.h"
#include "gpu/device.h"
#include "ops/documents.h"
#include "ops/gpu_attention.h"
#include "ops/numerics.h"
#include "ops/ops_test.h"
#include "ops/rope.h"

namespace argosy::ops {
namespace {

struct Case {
    int64_t sequences, seq_len, heads, kv_heads, head_dim;
};
constexpr Case kCases[] = {
    {1, 1, 1, 1, 2},   {2, 5, 2, 2, 8},    {3, 7, 4, 2, 2},  {2, 13, 5, 1, 8},
    {1, 33, 3, 3, 17}, {1, 67, 10, 2, 64}, {2, 1, 2, 1, 64},
};
// Sizes around the edges of the kernels' tiles, strips and blocks, up to three blocks, and heads of any size.
constexpr Case kEdges[] = {
    {2, 31, 4, 1, 64},  {1, 32, 2, 2, 80},   {3, 33, 1, 1, 96},  {1, 95, 2, 1, 20},  {2, 96, 4, 1, 128},
    {1, 97, 1, 1, 256}, {1, 127, 4, 1, 128}, {1, 128, 2, 2, 64}, {2, 129, 4, 1, 80}, {1, 257, 8, 2, 64},
};

// Qwen2.5 0.5B, 1.5B and 7B in training: cuDNN computes their attention on a GPU
// (gpu/with_cuda/attention.cpp).
constexpr Case kModels[] = {{2, 1024, 14, 2, 64}, {1, 1024, 12, 2, 128}, {1, 1024, 28, 4, 128}};

AttentionShape whole(const Case& c) {
    return AttentionShape::of_whole_sequences(c.sequences, c.seq_len, c.head_dim);
}

at::Tensor heads_first(const at::Tensor& x, const Case& c, int64_t repeats) {
    return x.view({c.sequences, c.seq_len, -1, c.head_dim}).transpose(1, 2).repeat_interleave(repeats, 1);
}

/// Keys after the query: [seq_len, seq_len].
at::Tensor later_keys(const Case& c, c10::Device device) {
    return at::ones({c.seq_len, c.seq_len}, at::TensorOptions(device).dtype(at::kBool)).triu(1);
}

/// The reference: the whole matrix of scores, with an explicit mask of hidden keys.
at::Tensor plain_scores(const at::Tensor& q, const at::Tensor& k, const Case& c, const at::Tensor& hidden) {
    const at::Tensor products =
        heads_first(q, c, 1).matmul(heads_first(k, c, c.heads / c.kv_heads).transpose(2, 3));
    return (products / std::sqrt(static_cast<double>(c.head_dim)))
        .masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

at::Tensor plain_attention(const std::vector<at::Tensor>& in, const Case& c, const at::Tensor& hidden = {}) {
    return plain_scores(in[0], in[1], c, hidden.defined() ? hidden : later_keys(c, in[0].device()))
        .softmax(-1)
        .matmul(heads_first(in[2], c, c.heads / c.kv_heads))
        .transpose(1, 2)
        .reshape({c.sequences * c.seq_len, c.heads * c.head_dim});
}

/// Watches scores above the mean of the heads' largest ones, or above `threshold`, and compares them with
/// those of the reference.
class Watched {
  public:
    Watched(const std::vector<at::Tensor>& in, const Case& c, const at::Tensor& hidden,
            std::optional<double> threshold = {})
        : type_(accumulation_type(in[0].scalar_type())),
          largest_(plain_scores(in[0].cpu().to(at::kDouble), in[1].cpu().to(at::kDouble), c, hidden.cpu())
                       .amax({0, 2, 3})),
          threshold_(threshold.value_or(std::max(0.0, largest_.mean().item<double>()))) {}

    ScoreWatch watch() {
        found_ = at::full({largest_.numel()}, kNone, placed(type_));
        return {found_, threshold_};
    }
    /// A head without scores above the threshold keeps what it had.
    void expect_found() const {
        const at::Tensor expected = largest_.masked_fill(largest_.le(threshold_), kNone),
                         found = found_.cpu().to(at::kDouble);
        const double tolerance = type_ == at::kDouble ? 1e-13 : 1e-6;
        EXPECT_TRUE(at::allclose(found, expected, tolerance, /*atol=*/tolerance)) << found << expected;
    }
    double largest() const { return largest_.max().item<double>(); }

  private:
    static constexpr double kNone = -std::numeric_limits<double>::infinity();

    at::ScalarType type_;
    at::Tensor largest_, found_;  // [heads]
    double threshold_;
};

/// The reference rotation of every head of x [tokens, heads * head_dim], in fp64.
at::Tensor rotated(const at::Tensor& x, const Case& c) {
    const at::Tensor angles = at::outer(at::arange(c.seq_len, at::kDouble),
                                        at::tensor(rotation_frequencies(c.head_dim), at::kDouble));
    const at::Tensor cos = angles.cos().unsqueeze(1), sin = angles.sin().unsqueeze(1);  // [tokens, 1, pairs]
    const at::Tensor pairs = x.view({c.sequences, c.seq_len, -1, 2, c.head_dim / 2});
    const at::Tensor first = pairs.select(3, 0), second = pairs.select(3, 1);
    return at::stack({first * cos - second * sin, second * cos + first * sin}, 3).view(x.sizes());
}

/// Columns of qkv [tokens, (heads + 2 * kv_heads) * head_dim], or of its gradient, as model::Block views
/// them.
struct Columns {
    Columns(const at::Tensor& qkv, const Case& c) {
        const int64_t wide = c.heads * c.head_dim, narrow = c.kv_heads * c.head_dim;
        q = qkv.narrow(1, 0, wide), k = qkv.narrow(1, wide, narrow), v = qkv.narrow(1, wide + narrow, narrow);
        qk = qkv.narrow(1, 0, wide + narrow);
    }
    at::Tensor q, k, v, qk;
};

class AttentionTest : public OpsTest {
  protected:
    using Forward = decltype(attention);
    using Backward = decltype(attention_backward);

    /// The positions of two sequences' tokens in documents: the second sequence has a document of one token
    /// and one across the edges of blocks.
    static at::Tensor positions_of_documents(const Case& c) {
        std::vector<int64_t> positions;
        for (int64_t sequence = 0; sequence < c.sequences; ++sequence) {
            for (int64_t token = 0, position = 0; token < c.seq_len; ++token, ++position) {
                if (sequence == 0 ? token == 3 : token == 100 || token == 101) position = 0;
                positions.push_back(position);
            }
        }
        return at::tensor(positions, at::kLong).to(testing::place());
    }

    /// The offsets of the documents, with room for some more, as kernels on GPUs read them.
    static at::Tensor offsets_of_documents(const Case& c, const at::Tensor& positions) {
        if (!positions.defined()) return {};
        const at::Tensor on_host = positions.cpu(), ends = at::empty_like(on_host);
        const auto size = static_cast<size_t>(on_host.numel());
        const int64_t num_documents = write_document_ends(
            {on_host.const_data_ptr<int64_t>(), size}, c.seq_len, {ends.mutable_data_ptr<int64_t>(), size});
        return document_offsets(ends.to(testing::place()), document_capacity(num_documents + 2));
    }

    /// On a GPU kernels compute a part of the queries with all keys up to the last one, with the keys at the
    /// same places, and, if `serve_earlier`, with earlier keys.
    static void expect_kernels(const at::Tensor& q, const at::Tensor& positions, const AttentionShape& until,
                               const AttentionShape& early, const AttentionShape& late, bool serve_earlier) {
        if (!gpu::holds(q) ||
            !gpu_serves(
                q, AttentionShape::of_whole_sequences(until.num_sequences, until.q_len, until.head_dim), {}))
            return;
        EXPECT_TRUE(gpu_serves(q, until, positions));
        const AttentionShape& same = early.q_offset == 0 ? early : late;
        EXPECT_TRUE(gpu_serves(q, same, positions));
        if (early.q_offset > 0) {
            EXPECT_EQ(gpu_serves(q, early, positions), serve_earlier);
        }
    }

    /// The same of a part of each sequence that has these positions.
    static at::Tensor offsets_of_part(const Case& c, const at::Tensor& positions, int64_t q_len) {
        if (!positions.defined()) return {};
        return offsets_of_documents({c.sequences, q_len, c.heads, c.kv_heads, c.head_dim}, positions);
    }

    /// The keys that each query does not see: [seq_len, seq_len], with documents [sequences, 1, seq_len,
    /// seq_len].
    static at::Tensor hidden_keys(const Case& c, const at::Tensor& positions, int64_t window) {
        const at::Tensor places = at::arange(c.seq_len, at::kLong);
        const at::Tensor distance = places.unsqueeze(1) - places;
        const at::Tensor hidden = distance.lt(0).logical_or(distance.ge(window));
        if (!positions.defined()) return hidden;
        return hidden.logical_or(distance.gt(positions.cpu().view({c.sequences, 1, c.seq_len, 1})));
    }

    /// Some tokens of every sequence, as rows.
    static at::Tensor tokens_of(const at::Tensor& x, const Case& c, int64_t begin, int64_t size) {
        return x.view({c.sequences, c.seq_len, -1}).narrow(1, begin, size).reshape({c.sequences * size, -1});
    }

    /// The largest scores with documents and a window, of whole sequences and of each half of the queries
    /// with each half of the keys. The first key of a sequence is large, but queries that see it are 0, so
    /// that it counts only where a mask is ignored.
    void check_largest_of_masks(const Case& c, const at::Tensor& positions, int64_t window) {
        SCOPED_TRACE(describe(c) + (positions.defined() ? " documents" : "") + " window " +
                     std::to_string(window));
        const at::Tensor hidden = hidden_keys(c, positions, window);
        const std::vector<at::Tensor> in = inputs(c);
        const at::Tensor is_blind = hidden.expand({c.sequences, 1, c.seq_len, c.seq_len}).select(3, 0);
        in[0].mul_(is_blind.reshape({-1, 1}).to(in[0].device()));
        in[1].view({c.sequences, c.seq_len, -1}).select(1, 0).mul_(50);
        Watched watched(in, c, hidden);
        auto shape = AttentionShape::of_whole_sequences(c.sequences, c.seq_len, c.head_dim, window);
        shape.document_offsets = offsets_of_documents(c, positions);
        shape.watch = watched.watch();
        attention(in[0], in[1], in[2], shape, positions);
        watched.expect_found();
        shape.watch = watched.watch();
        const int64_t half = c.seq_len / 2, rest = c.seq_len - half;
        for (const auto& [query, q_len] : {std::pair{int64_t{0}, half}, {half, rest}}) {
            const at::Tensor own =
                positions.defined() ? tokens_of(positions, c, query, q_len).flatten() : positions;
            for (const auto& [key, k_len] : {std::pair{int64_t{0}, half}, {half, rest}}) {
                AttentionShape of_part = shape;
                of_part.q_len = q_len, of_part.k_len = k_len, of_part.q_offset = query - key;
                of_part.document_offsets = offsets_of_part(c, own, q_len);
                attention_part(tokens_of(in[0], c, query, q_len), tokens_of(in[1], c, key, k_len),
                               tokens_of(in[2], c, key, k_len), of_part, own);
            }
        }
        watched.expect_found();
    }

    /// Attention with documents and a window against the reference: whole sequences, then the same from parts
    /// of the queries and of the keys, as context parallelism computes it.
    void check_masks(const Case& c, const at::Tensor& positions, int64_t window, Forward forward = attention,
                     Backward backward = attention_backward) {
        SCOPED_TRACE(describe(c) + (positions.defined() ? " documents" : "") + " window " +
                     std::to_string(window));
        // 1. the reference
        const at::Tensor hidden = hidden_keys(c, positions, window);
        const std::vector<at::Tensor> in = inputs(c);
        const Differentiated oracle =
            differentiate([&](const auto& x) { return plain_attention(x, c, hidden.clone()); },
                          {in[0], in[1], in[2]}, in[3]);
        // 2. whole sequences
        auto shape = AttentionShape::of_whole_sequences(c.sequences, c.seq_len, c.head_dim, window);
        shape.document_offsets = offsets_of_documents(c, positions);
        const AttentionOutput output = forward(in[0], in[1], in[2], shape, positions);
        EXPECT_TRUE(right(output.y, oracle.value));
        const auto [dq, dk, dv] = backward(in[3], in[0], in[1], in[2], output, shape, positions);
        EXPECT_TRUE(right(dq, oracle.gradients[0]));
        EXPECT_TRUE(right(dk, oracle.gradients[1]));
        EXPECT_TRUE(right(dv, oracle.gradients[2]));
        // 3. each half of the queries with each half of the keys
        const int64_t half = c.seq_len / 2;
        const auto part = [&](const at::Tensor& x, int64_t begin, int64_t size) {
            return tokens_of(x, c, begin, size);
        };
        // Sums in fp64: each part is rounded, and no sum of parts.
        const at::Tensor sum_k = at::zeros_like(in[1], at::kDouble),
                         sum_v = at::zeros_like(in[2], at::kDouble);
        const auto add = [&](const at::Tensor& sum, int64_t begin, int64_t size, const at::Tensor& more) {
            sum.view({c.sequences, c.seq_len, -1}).narrow(1, begin, size) +=
                more.view({c.sequences, size, -1});
        };
        for (const auto& [q_begin, q_len] :
             {std::pair{int64_t{0}, half}, std::pair{half, c.seq_len - half}}) {
            const at::Tensor q = part(in[0], q_begin, q_len), dy = part(in[3], q_begin, q_len),
                             own = positions.defined() ? part(positions, q_begin, q_len).flatten()
                                                       : at::Tensor();
            const at::Tensor offsets = offsets_of_part(c, own, q_len);
            const auto of_keys = [&](bool late) {
                return AttentionShape{c.sequences,
                                      q_len,
                                      late ? c.seq_len - half : half,
                                      c.head_dim,
                                      late ? q_begin - half : q_begin,
                                      window,
                                      offsets};
            };
            const auto keys = [&](const at::Tensor& x, bool late) {
                return part(x, late ? half : 0, late ? c.seq_len - half : half);
            };
            const auto part_of = forward == attention ? attention_part : forward;
            const AttentionOutput early =
                part_of(q, keys(in[1], false), keys(in[2], false), of_keys(false), own);
            const AttentionOutput late = part_of(q, keys(in[1], true), keys(in[2], true), of_keys(true), own);
            AttentionOutput all = merge_attention(early, late);
            all.y = all.y.to(q.scalar_type());
            EXPECT_TRUE(right(all.y, part(oracle.value, q_begin, q_len)));
            at::Tensor dq_sum = at::zeros_like(q, at::kDouble);
            for (const bool is_late : {false, true}) {
                const auto gradient =
                    backward(dy, q, keys(in[1], is_late), keys(in[2], is_late), all, of_keys(is_late), own);
                dq_sum += gradient.dq;
                add(sum_k, is_late ? half : 0, is_late ? c.seq_len - half : half, gradient.dk);
                add(sum_v, is_late ? half : 0, is_late ? c.seq_len - half : half, gradient.dv);
            }
            EXPECT_TRUE(close(dq_sum, part(oracle.gradients[0], q_begin, q_len), 2 * GetParam().tolerance));
            // 4. these queries with all keys up to the last of them
            if (!positions.defined()) continue;
            AttentionShape until = of_keys(false);
            until.k_len = q_begin + q_len;
            const at::Tensor k = part(in[1], 0, until.k_len), v = part(in[2], 0, until.k_len);
            expect_kernels(q, own, until, of_keys(false), of_keys(true), q_begin > 0 && window == kNoWindow);
            const AttentionOutput joint = forward(q, k, v, until, own);
            EXPECT_TRUE(right(joint.y, part(oracle.value, q_begin, q_len)));
            EXPECT_TRUE(right(backward(dy, q, k, v, joint, until, own).dq,
                              part(oracle.gradients[0], q_begin, q_len)));
        }
        EXPECT_TRUE(close(sum_k, oracle.gradients[1], 2 * GetParam().tolerance));
        EXPECT_TRUE(close(sum_v, oracle.gradients[2], 2 * GetParam().tolerance));
    }

    void check(const Case& c, Forward forward = attention, Backward backward = attention_backward) {
        const int64_t tokens = c.sequences * c.seq_len;
        const at::Tensor q = normal({tokens, c.heads * c.head_dim}), dy = normal(q.sizes());
        const at::Tensor k = normal({tokens, c.kv_heads * c.head_dim}), v = normal(k.sizes());
        const AttentionShape shape = whole(c);
        const Differentiated oracle =
            differentiate([&](const auto& in) { return plain_attention(in, c); }, {q, k, v}, dy);

        const AttentionOutput output = forward(q, k, v, shape, {});
        EXPECT_TRUE(right(output.y, oracle.value)) << describe(c);
        const auto [dq, dk, dv] = backward(dy, q, k, v, output, shape, {});
        // A sequence of one token attends only to itself: the gradients of q and k are exactly 0, while bf16
        // kernels leave a rounding error of dy v.
        if (c.seq_len > 1) {
            EXPECT_TRUE(right(dq, oracle.gradients[0])) << describe(c);
            EXPECT_TRUE(right(dk, oracle.gradients[1])) << describe(c);
        }
        EXPECT_TRUE(right(dv, oracle.gradients[2])) << describe(c);
    }

    /// Forward and backward as model::Block runs them: q, k and v are columns of one matrix, in which q and k
    /// are rotated in place; their gradients go, rotated back, into the columns of another matrix.
    void check_columns(const Case& c) {
        const int64_t tokens = c.sequences * c.seq_len, columns = (c.heads + 2 * c.kv_heads) * c.head_dim;
        const at::Tensor qkv = normal({tokens, columns}), dy = normal({tokens, c.heads * c.head_dim});
        const at::Tensor products = qkv.clone(), dqkv = at::empty_like(qkv);
        const Columns inputs(products, c), gradients(dqkv, c);
        const AttentionShape shape = whole(c);
        const RopeTable table = make_rope_table(rotation_frequencies(c.head_dim), 1, c.seq_len,
                                                placed(accumulation_type(GetParam().type)));
        write_rope(inputs.qk, inputs.qk, table);
        const AttentionOutput output = attention(inputs.q, inputs.k, inputs.v, shape);
        const auto [dq, dk, dv] = attention_backward(dy, inputs.q, inputs.k, inputs.v, output, shape);
        gradients.v.copy_(dv);
        write_rope_backward(gradients.q, dq, table);
        write_rope_backward(gradients.k, dk, table);
        if (testing::place().is_cuda() && has_16_bits()) {
            EXPECT_EQ(output.log_sum_exp.dim(), 4)
                << "FlashAttention computed it, not cuDNN, which adds a dim of 1";
        }
        compare_by_key_head(c, Columns(qkv, c), dy, output.y, gradients);
    }

    /// Against the oracle, one key head after the other, because the scores of all heads take gigabytes.
    void compare_by_key_head(const Case& c, const Columns& inputs, const at::Tensor& dy, const at::Tensor& y,
                             const Columns& gradients) {
        const int64_t narrow = c.head_dim, wide = c.heads / c.kv_heads * narrow;
        const Case group{c.sequences, c.seq_len, c.heads / c.kv_heads, 1, c.head_dim};
        for (int64_t head = 0; head < c.kv_heads; ++head) {
            const auto queries = [&](const at::Tensor& x) { return x.narrow(1, head * wide, wide); };
            const auto keys = [&](const at::Tensor& x) { return x.narrow(1, head * narrow, narrow); };
            const Differentiated oracle = differentiate(
                [&](const auto& in) {
                    return plain_attention({rotated(in[0], group), rotated(in[1], group), in[2]}, group);
                },
                {queries(inputs.q), keys(inputs.k), keys(inputs.v)}, queries(dy));
            EXPECT_TRUE(right(queries(y), oracle.value)) << describe(c) << " key head " << head;
            EXPECT_TRUE(right(queries(gradients.q), oracle.gradients[0]))
                << describe(c) << " dq, key head " << head;
            EXPECT_TRUE(right(keys(gradients.k), oracle.gradients[1]))
                << describe(c) << " dk, key head " << head;
            EXPECT_TRUE(right(keys(gradients.v), oracle.gradients[2]))
                << describe(c) << " dv, key head " << head;
        }
    }

    static bool has_16_bits() { return GetParam().type == at::kBFloat16; }

    /// All results of forward and backward.
    static std::vector<at::Tensor> results(const std::vector<at::Tensor>& in, const AttentionShape& shape,
                                           const at::Tensor& positions = {}) {
        const AttentionOutput output = attention(in[0], in[1], in[2], shape, positions);
        const auto [dq, dk, dv] = attention_backward(in[3], in[0], in[1], in[2], output, shape, positions);
        return {output.y, output.log_sum_exp, dq, dk, dv};
    }
    /// q, k, v, dy.
    std::vector<at::Tensor> inputs(const Case& c) {
        const int64_t tokens = c.sequences * c.seq_len, columns = c.heads * c.head_dim,
                      kv_columns = c.kv_heads * c.head_dim;
        return {normal({tokens, columns}), normal({tokens, kv_columns}), normal({tokens, kv_columns}),
                normal({tokens, columns})};
    }

    static std::string describe(const Case& c) {
        return ::testing::PrintToString(std::vector{c.sequences, c.seq_len, c.heads, c.kv_heads, c.head_dim});
    }
};

TEST_P(AttentionTest, MatchesPlainSoftmax) {
    for (const Case& c : kCases) check(c);
}

TEST_P(AttentionTest, MatchesPlainSoftmaxAtTheEdgesOfBlocks) {
    for (const Case& c : kEdges) check(c);
}

TEST_P(AttentionTest, TheCompositionMatchesPlainSoftmax) {
    for (const Case& c : kCases) check(c, composed_attention, composed_attention_backward);
}

TEST_P(AttentionTest, DocumentsWindowsAndPartsOfSequencesMatchMaskedSoftmax) {
    for (const Case& c : {Case{2, 20, 2, 1, 8}, Case{2, 131, 4, 2, 16}}) {
        const at::Tensor positions = positions_of_documents(c);
        for (const int64_t window : {kNoWindow, int64_t{5}}) {
            check_masks(c, {}, window);
            check_masks(c, positions, window);
            check_masks(c, positions, window, composed_attention, composed_attention_backward);
        }
    }
}

TEST_P(AttentionTest, KernelsRefuseDocumentsThatOverlap) {
    const Case c{1, 4, 1, 1, 8};
    const std::vector<at::Tensor> in = inputs(c);
    if (gpu::holds(in[0]) || GetParam().path == Path::Plain) return;
    // The last token continues the first document.
    const at::Tensor positions = at::tensor({0, 1, 0, 3}, at::kLong);
    EXPECT_ERROR(attention(in[0], in[1], in[2], whole(c), positions), RunError, "overlap at token 3");
}

// The outputs for parts of the keys are merged before they are rounded.
TEST_P(AttentionTest, OnAGpuRefusesMoreDocumentsThanTheKernelsTake) {
    const Case c{40000, 1, 1, 1, 8};
    const std::vector<at::Tensor> in = inputs(c);
    const at::Tensor positions = at::zeros({c.sequences}, placed(at::kLong));
    AttentionShape shape = whole(c);
    shape.document_offsets = offsets_of_documents(c, positions);
    if (!gpu::holds(in[0]) || !gpu_serves(in[0], shape, positions)) return;
    EXPECT_ERROR(attention(in[0], in[1], in[2], shape, positions), UserError, "at most 65535 documents",
                 "room for 65536", "training.local_batch_size");
}

TEST_P(AttentionTest, APartIsNotRoundedToTheTypeOfTheQueries) {
    const Case c{2, 131, 4, 2, 16};
    const std::vector<at::Tensor> in = inputs(c);
    const at::Tensor positions = positions_of_documents(c);
    const AttentionOutput rounded = attention(in[0], in[1], in[2], whole(c), positions),
                          part = attention_part(in[0], in[1], in[2], whole(c), positions);
    EXPECT_EQ(part.y.scalar_type(), accumulation_type(GetParam().type));
    EXPECT_TRUE(identical(part.y.to(GetParam().type), rounded.y));
    EXPECT_TRUE(identical(part.log_sum_exp, rounded.log_sum_exp));
    EXPECT_EQ(part.y.equal(rounded.y.to(part.y.scalar_type())), !has_16_bits());
}

// Where cuDNN does not compute it, the same heads attend over 128 tokens: with 1024 the oracle takes 64 times
// as long, and the test runs for every type and instruction set. The lengths at which the processor's kernels
// differ are in kEdges.
TEST_P(AttentionTest, ColumnsOfOneMatrixMatchPlainSoftmax) {
    for (Case c : kModels) {
        if (!testing::place().is_cuda() || !has_16_bits()) c.seq_len = 128;
        check_columns(c);
    }
}

TEST_P(AttentionTest, LogSumExpIsThatOfTheScores) {
    for (const Case& c : {Case{2, 5, 2, 2, 8}, Case{2, 129, 4, 1, 80}}) {
        const std::vector<at::Tensor> in = inputs(c);
        const at::Tensor scores =
            plain_scores(in[0].to(at::kDouble), in[1].to(at::kDouble), c, later_keys(c, in[0].device()));
        const at::Tensor actual = attention(in[0], in[1], in[2], whole(c)).log_sum_exp;
        const at::Tensor expected = scores.logsumexp(-1);  // cuDNN's has a trailing dim of 1
        EXPECT_TRUE(close(actual.view(expected.sizes()), expected, GetParam().tolerance)) << describe(c);
    }
}

// Thresholds near the largest score, and below all; log-sum-exps above the threshold whose scores are not.
TEST_P(AttentionTest, LargestScoresAreExactAboveTheThreshold) {
    for (const Case& c : {kCases[0], kCases[1], kCases[2], kCases[3], kCases[4], kEdges[2], kEdges[8]}) {
        const std::vector<at::Tensor> in = inputs(c);
        const at::Tensor hidden = later_keys(c, at::kCPU);
        const double largest = Watched(in, c, hidden, 0).largest();
        for (const double threshold : {0.0, 0.999 * largest, 1.001 * largest, 100.0}) {
            SCOPED_TRACE(describe(c) + " above " + std::to_string(threshold));
            Watched watched(in, c, hidden, std::max(0.0, threshold));
            AttentionShape shape = whole(c);
            shape.watch = watched.watch();
            attention(in[0], in[1], in[2], shape);
            watched.expect_found();
        }
    }
}

TEST_P(AttentionTest, LargestScoresAreThoseOfVisibleKeys) {
    for (const Case& c : {Case{2, 20, 2, 1, 8}, Case{2, 131, 4, 2, 16}}) {
        for (const int64_t window : {kNoWindow, int64_t{5}}) {
            check_largest_of_masks(c, positions_of_documents(c), window);
        }
        check_largest_of_masks(c, {}, 5);
    }
}

// A larger score of an earlier microbatch stays. Queries and keys are columns of one matrix.
TEST_P(AttentionTest, LargestScoresOnlyRise) {
    const Case c{2, 40, 4, 2, 8};
    const at::Tensor qkv = normal({c.sequences * c.seq_len, (c.heads + 2 * c.kv_heads) * c.head_dim});
    const Columns in(qkv, c);
    Watched watched({in.q.contiguous(), in.k.contiguous()}, c, later_keys(c, at::kCPU), 0);
    AttentionShape shape = whole(c);
    shape.watch = watched.watch();
    attention(in.q, in.k, in.v, shape);
    attention(in.q / 2, in.k, in.v, shape);
    watched.expect_found();
}

// Scores in the thousands: each query attends to one key only, and the gradients of q and k vanish.
TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
    const Case c{1, 9, 2, 1, 8};
    const AttentionShape shape = whole(c);
    const at::Tensor q = normal({9, 16}, 30), k = normal({9, 8}, 30), v = normal({9, 8}),
                     dy = normal({9, 16});
    const Differentiated oracle =
        differentiate([&](const auto& in) { return plain_attention(in, c); }, {q, k, v}, dy);
    const AttentionOutput output = attention(q, k, v, shape);
    EXPECT_TRUE(right(output.y, oracle.value));
    const auto [dq, dk, dv] = attention_backward(dy, q, k, v, output, shape);
    EXPECT_TRUE(right(dv, oracle.gradients[2]));
    const double limit = 30 * GetParam().tolerance * c.head_dim;  // the rounding error of dy v, times k or q
    for (const at::Tensor& moved : {dq, dk}) EXPECT_LT(moved.abs().max().item<double>(), limit);
}

TEST_P(AttentionTest, LaterTokensAndOtherSequencesDoNotMatter) {
    const auto shape = AttentionShape::of_whole_sequences(2, 6, 4);
    const at::Tensor q = normal({12, 8}), k = normal({12, 4}), v = normal({12, 4});
    at::Tensor other_k = k.clone(), other_v = v.clone();
    for (at::Tensor* changed : {&other_k, &other_v}) changed->narrow(0, 4, 5).fill_(7);  // tokens 4 .. 8
    const at::Tensor y = attention(q, k, v, shape).y, other_y = attention(q, other_k, other_v, shape).y;
    EXPECT_TRUE(identical(other_y.narrow(0, 0, 4), y.narrow(0, 0, 4)));
    EXPECT_FALSE(identical(other_y.narrow(0, 4, 2), y.narrow(0, 4, 2)));
    EXPECT_FALSE(identical(other_y.narrow(0, 9, 3), y.narrow(0, 9, 3))) << "the second sequence sees 6 .. 8";
}

// A masked key adds exactly nothing to earlier tokens, also across blocks.
TEST_P(AttentionTest, LaterTokensDoNotMatterInLongSequences) {
    const Case c{1, 131, 2, 1, 16};
    const AttentionShape shape = whole(c);
    const std::vector<at::Tensor> in = inputs(c), before = results(in, shape);
    for (const int64_t first : {1, 15, 16, 50, 95, 96, 97, 130}) {
        std::vector<at::Tensor> changed = in;
        for (const int i : {1, 2}) {
            changed[i] = in[i].clone();
            changed[i].narrow(0, first, c.seq_len - first).mul_(-3);
        }
        const std::vector<at::Tensor> after = results(changed, shape);
        for (const int i : {0, 2}) {  // y, dq
            EXPECT_TRUE(identical(after[i].narrow(0, 0, first), before[i].narrow(0, 0, first))) << i << first;
            EXPECT_FALSE(identical(after[i].narrow(0, first, 1), before[i].narrow(0, first, 1)))
                << i << first;
        }
    }
}

TEST_P(AttentionTest, RowsMayBeStrided) {
    const Case c{2, 20, 2, 2, 8};
    const at::Tensor all = normal({40, 4 * 16});
    std::vector<at::Tensor> slices, copies;
    for (int i = 0; i < 4; ++i) {
        slices.push_back(all.narrow(1, 16 * i, 16));
        copies.push_back(slices.back().contiguous());
    }
    const AttentionShape shape = whole(c);
    const std::vector<at::Tensor> once = results(copies, shape), again = results(slices, shape);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(identical(again[i], once[i])) << i;
}

// LibTorch's attention rounds differently depending on memory alignment, which differs between threads. CMake
// runs this once more with OMP_THREAD_LIMIT=1: one thread then has the parts of all, and no part may wait for
// a later one.
TEST_P(AttentionTest, NumberOfThreadsDoesNotMatter) {
    const bool is_exact =
        GetParam().path == Path::Fused && !gpu::holds(at::zeros({1}, placed(GetParam().type)));
    const int threads = at::get_num_threads();
    for (const Case& c : {Case{3, 130, 4, 2, 32}, Case{1, 500, 4, 2, 32}, Case{2, 300, 2, 1, 16}}) {
        AttentionShape shape = whole(c);
        const std::vector<at::Tensor> in = inputs(c);
        for (const int64_t window : {kNoWindow, int64_t{150}}) {
            shape.window = window;
            const at::Tensor positions = c.heads == 2 ? positions_of_documents(c) : at::Tensor();
            shape.document_offsets = offsets_of_documents(c, positions);
            at::set_num_threads(1);
            const std::vector<at::Tensor> once = results(in, shape, positions);
            for (const int number : {2, 3, 7, 16}) {
                at::set_num_threads(number);
                const std::vector<at::Tensor> again = results(in, shape, positions);
                for (size_t i = 0; i < once.size(); ++i) {
                    EXPECT_TRUE(is_exact ? identical(again[i], once[i])
                                         : close(again[i], once[i], GetParam().tolerance))
                        << i << " on " << number;
                }
            }
        }
    }
    at::set_num_threads(threads);
}

// Inputs that are not finite show in the results, and do not affect the next call.
TEST_P(AttentionTest, NonfiniteInputsShow) {
    const Case c{1, 100, 2, 1, 16};
    const AttentionShape shape = whole(c);
    const std::vector<at::Tensor> in = inputs(c), before = results(in, shape);
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
        // LibTorch's attention gives finite weights to infinite scores in 16 bits.
        if (std::isinf(bad) && GetParam().path == Path::Plain) continue;
        for (size_t changed = 0; changed < in.size(); ++changed) {
            std::vector<at::Tensor> spoiled = in;
            spoiled[changed] = in[changed].clone();
            spoiled[changed].narrow(0, 40, 1).narrow(1, 3, 1).fill_(bad);
            const std::vector<at::Tensor> after = results(spoiled, shape);
            const auto shows = [](const at::Tensor& x) { return !x.isfinite().all().item<bool>(); };
            EXPECT_EQ(shows(after[0]), changed < 3) << bad << " in input " << changed;
            for (const int i : {2, 3})
                EXPECT_TRUE(shows(after[i])) << bad << " in " << changed << " not in " << i;
        }
    }
    const std::vector<at::Tensor> again = results(in, shape);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(identical(again[i], before[i])) << i;
}

ARGOSY_FOR_EACH_VARIANT(AttentionTest);

}  // namespace
}  // namespace argosy::ops
