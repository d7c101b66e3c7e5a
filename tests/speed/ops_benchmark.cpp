// The cost of each operation on this machine, with Argosy's kernels and as a composition of LibTorch's
// operations: FLOP/s of products and attention, bytes/s of the others. Bytes count the reads and writes that
// the mathematics needs, so a composition of several passes shows less than the memory's bandwidth, which
// `copy` shows. Sizes: 2048 tokens of a model 512 wide with 8 heads, hidden size 1344, vocabulary 8192.
// tests/ops verifies the results.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include <cstring>

#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/glu.h"
#include "ops/grouped.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"
#include "ops/orthogonal.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/routing.h"
#include "ops/sums.h"

namespace argosy::ops {
namespace {

constexpr int64_t kSequences = 4, kSeqLen = 512, kTokens = kSequences * kSeqLen;
constexpr int64_t kDim = 512, kHeads = 8, kHeadDim = kDim / kHeads, kHidden = 1344, kVocab = 8192;

at::Tensor random(at::IntArrayRef shape, at::ScalarType type) { return at::randn(shape).to(type); }

/// Rates, computed from the work of one iteration.
void report_flops(benchmark::State& state, double flops) {
    state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}
void report_bytes(benchmark::State& state, int64_t elements, at::ScalarType type) {
    state.SetBytesProcessed(state.iterations() * elements * static_cast<int64_t>(c10::elementSize(type)));
}

/// A linear layer of these sizes, and its two gradients.
struct Linear {
    int64_t tokens, in, out;
    double flops() const { return 2.0 * tokens * in * out; }
};
constexpr Linear kUp{kTokens, kDim, kHidden}, kDown{kTokens, kHidden, kDim};
constexpr Linear kHead{kSeqLen, kDim, kVocab};  // of one chunk of logits

template <Linear kLayer>
void linear_forward(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kLayer.tokens, kLayer.in}, type), w = random({kLayer.out, kLayer.in}, type);
    for (auto _ : state) benchmark::DoNotOptimize(linear(x, w));
    report_flops(state, kLayer.flops());
}

template <Linear kLayer>
void linear_input(benchmark::State& state, at::ScalarType type) {
    const at::Tensor dy = random({kLayer.tokens, kLayer.out}, type),
                     w = random({kLayer.out, kLayer.in}, type);
    for (auto _ : state) benchmark::DoNotOptimize(linear_input_gradient(dy, w));
    report_flops(state, kLayer.flops());
}

template <Linear kLayer>
void linear_weight(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kLayer.tokens, kLayer.in}, type),
                     dy = random({kLayer.tokens, kLayer.out}, type);
    at::Tensor sum = random({kLayer.out, kLayer.in}, at::kFloat);
    for (auto _ : state) linear_weight_gradient(sum, dy, x, /*accumulate=*/true);
    report_flops(state, kLayer.flops());
}

/// Experts with 64 rows each; their matrices do not fit in L3. `Alone` variants multiply each expert's rows
/// with the function for one matrix.
struct Experts {
    static constexpr int64_t kCount = 32, kRows = 64, kIn = 2048, kOut = 768;

    at::Tensor x, dy, weight, sum, counts;

    explicit Experts(at::ScalarType type)
        : x(random({kCount * kRows, kIn}, type)),
          dy(random({kCount * kRows, kOut}, type)),
          weight(random({kOut, kIn}, type).repeat({kCount, 1, 1})),
          sum(at::zeros({kCount, kOut, kIn}, at::kFloat)),
          counts(at::full({kCount}, kRows, at::kLong)) {}

    static double flops() { return 2.0 * kCount * kRows * kIn * kOut; }
    at::Tensor rows(const at::Tensor& of, int64_t expert) const {
        return of.narrow(0, expert * kRows, kRows);
    }
};

template <bool kAlone>
void experts_forward(benchmark::State& state, at::ScalarType type) {
    const Experts experts(type);
    for (auto _ : state) {
        if (!kAlone) benchmark::DoNotOptimize(grouped_linear(experts.x, experts.weight, experts.counts));
        for (int64_t i = 0; kAlone && i < Experts::kCount; ++i)
            benchmark::DoNotOptimize(linear(experts.rows(experts.x, i), experts.weight[i]));
    }
    report_flops(state, Experts::flops());
}

template <bool kAlone>
void experts_input(benchmark::State& state, at::ScalarType type) {
    const Experts experts(type);
    for (auto _ : state) {
        if (!kAlone)
            benchmark::DoNotOptimize(grouped_input_gradient(experts.dy, experts.weight, experts.counts));
        for (int64_t i = 0; kAlone && i < Experts::kCount; ++i)
            benchmark::DoNotOptimize(linear_input_gradient(experts.rows(experts.dy, i), experts.weight[i]));
    }
    report_flops(state, Experts::flops());
}

template <bool kAlone>
void experts_weight(benchmark::State& state, at::ScalarType type) {
    const Experts experts(type);
    for (auto _ : state) {
        if (!kAlone)
            grouped_weight_gradient(experts.sum, experts.dy, experts.x, experts.counts, /*accumulate=*/true);
        for (int64_t i = 0; kAlone && i < Experts::kCount; ++i) {
            at::Tensor sum = experts.sum[i];
            linear_weight_gradient(sum, experts.rows(experts.dy, i), experts.rows(experts.x, i), true);
        }
    }
    report_flops(state, Experts::flops());
}

constexpr Router kRouter{.num_experts = 64, .top_k = 8};

void routing(benchmark::State& state, at::ScalarType) {
    const at::Tensor logits = random({kTokens, kRouter.num_experts}, at::kFloat);
    for (auto _ : state) benchmark::DoNotOptimize(route(logits, kRouter));
    report_bytes(state, kTokens * (kRouter.num_experts + 3 * kRouter.top_k), at::kFloat);
}

void routing_gradient(benchmark::State& state, at::ScalarType) {
    const at::Tensor logits = random({kTokens, kRouter.num_experts}, at::kFloat);
    const Routing choice = route(logits, kRouter);
    for (auto _ : state) benchmark::DoNotOptimize(route_backward(choice.weights, logits, choice, kRouter));
    report_bytes(state, kTokens * 2 * (kRouter.num_experts + kRouter.top_k), at::kFloat);
}

void permutation(benchmark::State& state, at::ScalarType type) {
    const Routing choice = route(random({kTokens, kRouter.num_experts}, at::kFloat), kRouter);
    const at::Tensor x = random({kTokens, kDim}, type);
    for (auto _ : state) benchmark::DoNotOptimize(permute(x, choice.order, kRouter.top_k));
    report_bytes(state, 2 * kTokens * kRouter.top_k * kDim, type);
}

void combination(benchmark::State& state, at::ScalarType type) {
    const Routing choice = route(random({kTokens, kRouter.num_experts}, at::kFloat), kRouter);
    const at::Tensor y = random({kTokens * kRouter.top_k, kDim}, type);
    for (auto _ : state) benchmark::DoNotOptimize(combine(y, choice.order, kRouter.top_k));
    report_bytes(state, kTokens * (kRouter.top_k + 1) * kDim, type);
}

void newton_schulz(benchmark::State& state, at::ScalarType type) {
    constexpr int kSteps = 5;
    const at::Tensor x = random({kDim, kHidden}, type);
    for (auto _ : state) benchmark::DoNotOptimize(orthogonalized(x, kSteps));
    report_flops(state, orthogonalization_flops(kDim, kHidden, kSteps));
}

/// One thread computes its share of a product that `threads` threads divide: the first block of the grid.
struct Share {
    static constexpr int64_t kTokens = 2048, kIn = 4096, kOut = 4096;

    int64_t rows, columns;
    double flops;

    static Share of(int64_t rows, int64_t columns, int64_t k, int threads) {
        const ProductGrid grid = divide_product(rows, columns, k, threads);
        return {grid.block_rows, grid.block_columns, 2.0 * grid.block_rows * grid.block_columns * k};
    }
};

void share_of_forward(benchmark::State& state, at::ScalarType type, int threads) {
    const Share share = Share::of(Share::kTokens, Share::kOut, Share::kIn, threads);
    const at::Tensor x = random({Share::kTokens, Share::kIn}, type).narrow(0, 0, share.rows),
                     w = random({Share::kOut, Share::kIn}, type).narrow(0, 0, share.columns);
    const at::Tensor y =
        random({Share::kTokens, Share::kOut}, type).narrow(0, 0, share.rows).narrow(1, 0, share.columns);
    for (auto _ : state) write_linear(y, x, Stack::of(w), {});
    report_flops(state, share.flops);
}

void share_of_input_gradient(benchmark::State& state, at::ScalarType type, int threads) {
    const Share share = Share::of(Share::kTokens, Share::kIn, Share::kOut, threads);
    const at::Tensor dy = random({Share::kTokens, Share::kOut}, type).narrow(0, 0, share.rows),
                     w = random({Share::kOut, Share::kIn}, type).narrow(1, 0, share.columns);
    const at::Tensor dx =
        random({Share::kTokens, Share::kIn}, type).narrow(0, 0, share.rows).narrow(1, 0, share.columns);
    for (auto _ : state) write_linear_input_gradient(dx, dy, Stack::of(w));
    report_flops(state, share.flops);
}

void share_of_weight_gradient(benchmark::State& state, at::ScalarType type, int threads) {
    const Share share = Share::of(Share::kOut, Share::kIn, Share::kTokens, threads);
    const at::Tensor dy = random({Share::kTokens, Share::kOut}, type).narrow(1, 0, share.rows),
                     x = random({Share::kTokens, Share::kIn}, type).narrow(1, 0, share.columns);
    at::Tensor sum =
        random({Share::kOut, Share::kIn}, at::kFloat).narrow(0, 0, share.rows).narrow(1, 0, share.columns);
    for (auto _ : state) linear_weight_gradient(sum, dy, x, /*accumulate=*/true);
    report_flops(state, share.flops);
}

/// The memory's bandwidth: a copy between two buffers.
void copy(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kHidden}, type), y = random({kTokens, kHidden}, type);
    for (auto _ : state) {
        std::memcpy(y.mutable_data_ptr(), x.const_data_ptr(), x.nbytes());
        benchmark::ClobberMemory();
    }
    report_bytes(state, 2 * kTokens * kHidden, type);
}

void norm_forward(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type), w = random({kDim}, type);
    for (auto _ : state) benchmark::DoNotOptimize(rms_norm(x, {w, 1e-5}));
    report_bytes(state, 2 * kTokens * kDim, type);
}

void norm_backward(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type), w = random({kDim}, type),
                     dy = random({kTokens, kDim}, type), residual = random({kTokens, kDim}, type);
    const Norm norm{w, 1e-5};
    const auto output = rms_norm(x, norm);
    for (auto _ : state)
        benchmark::DoNotOptimize(rms_norm_backward(dy, x, norm, output.inverse_rms, residual));
    report_bytes(state, 4 * kTokens * kDim, type);
}

void rotation(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type);
    const RopeTable table = make_rope_table(std::vector<double>(kHeadDim / 2, 0.1), 1, kSeqLen, at::kFloat);
    const at::Tensor y = at::empty_like(x);
    for (auto _ : state) write_rope(y, x, table);
    report_bytes(state, 2 * kTokens * kDim, type);
}

void rotation_in_place(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type);
    const RopeTable table = make_rope_table(std::vector<double>(kHeadDim / 2, 0.1), 1, kSeqLen, at::kFloat);
    for (auto _ : state) write_rope(x, x, table);
    report_bytes(state, 2 * kTokens * kDim, type);
}

template <Activation kActivation>
void gated(benchmark::State& state, at::ScalarType type) {
    const at::Tensor gate_up = random({kTokens, 2 * kHidden}, type);
    for (auto _ : state) benchmark::DoNotOptimize(glu(gate_up, kActivation));
    report_bytes(state, 3 * kTokens * kHidden, type);
}

template <Activation kActivation>
void gated_gradient(benchmark::State& state, at::ScalarType type) {
    const at::Tensor gate_up = random({kTokens, 2 * kHidden}, type), dy = random({kTokens, kHidden}, type);
    for (auto _ : state) benchmark::DoNotOptimize(glu_backward(dy, gate_up, kActivation));
    report_bytes(state, 5 * kTokens * kHidden, type);
}

struct AttentionSize {
    int64_t num_sequences, seq_len, heads, kv_heads, head_dim;
};
constexpr AttentionSize kShort{kSequences, kSeqLen, kHeads, kHeads, kHeadDim};
constexpr AttentionSize kLong{1, 4 * kSeqLen, 2, 1, 128};  // two queries share a key

struct AttentionInputs {
    AttentionInputs(const AttentionSize& size, at::ScalarType type)
        : shape(AttentionShape::of_whole_sequences(size.num_sequences, size.seq_len, size.head_dim)),
          q(random({size.num_sequences * size.seq_len, size.heads * size.head_dim}, type)),
          k(random({size.num_sequences * size.seq_len, size.kv_heads * size.head_dim}, type)),
          v(random(k.sizes(), type)),
          product_flops(static_cast<double>(q.numel() * size.seq_len)) {}

    AttentionShape shape;
    at::Tensor q, k, v;
    double product_flops;  // causal: half of the seq_len^2 scores. Two products forward, five backward
};

template <const AttentionSize& kSize>
void attention_forward(benchmark::State& state, at::ScalarType type) {
    const AttentionInputs in(kSize, type);
    for (auto _ : state) benchmark::DoNotOptimize(attention(in.q, in.k, in.v, in.shape));
    report_flops(state, 2 * in.product_flops);
}

template <const AttentionSize& kSize>
void attention_gradient(benchmark::State& state, at::ScalarType type) {
    const AttentionInputs in(kSize, type);
    const AttentionOutput output = attention(in.q, in.k, in.v, in.shape);
    for (auto _ : state) {
        benchmark::DoNotOptimize(attention_backward(output.y, in.q, in.k, in.v, output, in.shape));
    }
    report_flops(state, 5 * in.product_flops);
}

/// One sequence of 8 key heads, by this number of threads. Rates are of the sum of all threads' times: what a
/// thread spends on its share. With OMP_THREAD_LIMIT=1 one thread computes all shares in order, and the times
/// include no waiting.
struct ThreadCount {
    const int before = at::get_num_threads();
    explicit ThreadCount(int threads) { at::set_num_threads(threads); }
    ThreadCount(const ThreadCount&) = delete;
    ~ThreadCount() { at::set_num_threads(before); }
};
constexpr AttentionSize kOneSequence{1, 4096, 32, 8, 128};

void attention_of_threads(benchmark::State& state, at::ScalarType type, int threads) {
    const ThreadCount count(threads);
    attention_forward<kOneSequence>(state, type);
}
void attention_gradient_of_threads(benchmark::State& state, at::ScalarType type, int threads) {
    const ThreadCount count(threads);
    attention_gradient<kOneSequence>(state, type);
}

constexpr int64_t kChunk = 512;  // rows of logits at a time

void loss_sums(benchmark::State& state, at::ScalarType type) {
    const at::Tensor logits = random({kChunk, kVocab}, type),
                     targets = at::randint(kVocab, {kChunk}, at::kLong);
    for (auto _ : state) benchmark::DoNotOptimize(softmax_sums(logits, targets, 0));
    report_bytes(state, kChunk * kVocab, type);
}

void loss_gradient(benchmark::State& state, at::ScalarType type) {
    const at::Tensor targets = at::randint(kVocab, {kChunk}, at::kLong);
    at::Tensor logits = random({kChunk, kVocab}, type);
    const SoftmaxSums sums = softmax_sums(logits, targets, 0);
    const at::Tensor one = at::ones({}, sums.maxima.options());
    for (auto _ : state) turn_into_cross_entropy_gradient(logits, sums, targets, 0, one);
    report_bytes(state, 2 * kChunk * kVocab, type);
}

void lookup(benchmark::State& state, at::ScalarType type) {
    const at::Tensor table = random({kVocab, kDim}, type), tokens = at::randint(kVocab, {kTokens}, at::kLong);
    for (auto _ : state) benchmark::DoNotOptimize(embedding(table, tokens, 0));
    report_bytes(state, 2 * kTokens * kDim, type);
}

void lookup_gradient(benchmark::State& state, at::ScalarType type) {
    const at::Tensor dx = random({kTokens, kDim}, type), tokens = at::randint(kVocab, {kTokens}, at::kLong);
    at::Tensor sum = random({kVocab, kDim}, at::kFloat);
    for (auto _ : state) add_embedding_gradient(sum, dx, tokens, 0);
    state.SetBytesProcessed(state.iterations() * kTokens * kDim *
                            static_cast<int64_t>(8 + c10::elementSize(type)));
}

void row_sum(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type);
    at::Tensor sum = random({kDim}, at::kFloat);
    for (auto _ : state) add_row_sum(sum, x);
    report_bytes(state, kTokens * kDim, type);
}

void norm_of_gradient(benchmark::State& state, at::ScalarType) {
    const at::Tensor x = random({kHidden, kDim}, at::kFloat);
    for (auto _ : state) benchmark::DoNotOptimize(squared_norms(std::span(&x, 1)));
    report_bytes(state, x.numel(), at::kFloat);
}

using Operation = void (*)(benchmark::State&, at::ScalarType);
constexpr std::pair<const char*, Operation> kOperations[] = {
    {"linear/up", linear_forward<kUp>},
    {"linear/down", linear_forward<kDown>},
    {"linear/head", linear_forward<kHead>},
    {"linear_input_gradient/up", linear_input<kUp>},
    {"linear_input_gradient/head", linear_input<kHead>},
    {"linear_weight_gradient/up", linear_weight<kUp>},
    {"linear_weight_gradient/head", linear_weight<kHead>},
    {"experts/linear", experts_forward<false>},
    {"experts/linear/alone", experts_forward<true>},
    {"experts/linear_input_gradient", experts_input<false>},
    {"experts/linear_input_gradient/alone", experts_input<true>},
    {"experts/linear_weight_gradient", experts_weight<false>},
    {"experts/linear_weight_gradient/alone", experts_weight<true>},
    {"route", routing},
    {"route_backward", routing_gradient},
    {"permute", permutation},
    {"combine", combination},
    {"orthogonalized", newton_schulz},
    {"copy", copy},
    {"rms_norm", norm_forward},
    {"rms_norm_backward", norm_backward},
    {"rope", rotation},
    {"rope_in_place", rotation_in_place},
    {"swiglu", gated<Activation::Silu>},
    {"swiglu_backward", gated_gradient<Activation::Silu>},
    {"geglu", gated<Activation::GeluTanh>},
    {"geglu_backward", gated_gradient<Activation::GeluTanh>},
    {"attention", attention_forward<kShort>},
    {"attention_backward", attention_gradient<kShort>},
    {"attention_long", attention_forward<kLong>},
    {"attention_long_backward", attention_gradient<kLong>},
    {"softmax_sums", loss_sums},
    {"cross_entropy_gradient", loss_gradient},
    {"embedding", lookup},
    {"embedding_gradient", lookup_gradient},
    {"row_sum", row_sum},
    {"squared_norm", norm_of_gradient},
};

using ShareOf = void (*)(benchmark::State&, at::ScalarType, int threads);
constexpr std::pair<const char*, ShareOf> kShares[] = {{"linear", share_of_forward},
                                                       {"linear_input_gradient", share_of_input_gradient},
                                                       {"linear_weight_gradient", share_of_weight_gradient},
                                                       {"attention", attention_of_threads},
                                                       {"attention_backward", attention_gradient_of_threads}};

void register_shares() {
    for (const auto& [name, share] : kShares) {
        for (const int threads : {1, 8, 32, 64, 128}) {
            const std::string full_name = std::string("share/") + name + "/" + std::to_string(threads);
            benchmark::RegisterBenchmark(full_name.c_str(),
                                         [share = share, threads](benchmark::State& state) {
                                             const OpsContext tensors;
                                             share(state, at::kBFloat16, threads);
                                         })
                ->Unit(benchmark::kMillisecond)
                ->MeasureProcessCPUTime();
        }
    }
}

}  // namespace
}  // namespace argosy::ops

int main(int argc, char** argv) {
    using argosy::ops::Path;
    for (const auto& [name, operation] : argosy::ops::kOperations) {
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
            for (const Path path : {Path::Fused, Path::Plain}) {
                const std::string full_name = std::string(name) + (type == at::kFloat ? "/fp32" : "/bf16") +
                                              (path == Path::Fused ? "/fused" : "/plain");
                const auto run = [operation = operation, type, path](benchmark::State& state) {
                    const argosy::ops::OpsContext tensors(path);
                    operation(state, type);
                };
                benchmark::RegisterBenchmark(full_name.c_str(), run)->Unit(benchmark::kMillisecond);
            }
        }
    }
    argosy::ops::register_shares();
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
