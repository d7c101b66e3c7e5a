// What each operation costs on this machine: FLOP/s of products and attention, bytes/s of the rest (reads and
// writes that the mathematics needs, so that a composition of several passes shows as less than the memory's
// bandwidth). Sizes: 2048 tokens of a model 512 wide with 8 heads, hidden 1344, vocabulary 8192. tests/ops
// verifies the results.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/matmul.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/tensor_thread.h"

namespace argosy::ops {
namespace {

constexpr int64_t kSequences = 4, kSeqLen = 512, kTokens = kSequences * kSeqLen;
constexpr int64_t kDim = 512, kHeads = 8, kHeadDim = kDim / kHeads, kHidden = 1344, kVocab = 8192;

at::Tensor random(at::IntArrayRef shape, at::ScalarType type) { return at::randn(shape).to(type); }

/// Rates by the work of one iteration.
void report_flops(benchmark::State& state, double flops) {
    state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}
void report_bytes(benchmark::State& state, int64_t elements, at::ScalarType type) {
    state.SetBytesProcessed(state.iterations() * elements * static_cast<int64_t>(c10::elementSize(type)));
}

void linear_forward(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type), w = random({kHidden, kDim}, type);
    for (auto _ : state) benchmark::DoNotOptimize(linear(x, w));
    report_flops(state, 2.0 * kTokens * kDim * kHidden);
}

void linear_weight(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type), dy = random({kTokens, kHidden}, type);
    at::Tensor sum = random({kHidden, kDim}, at::kFloat);
    for (auto _ : state) linear_weight_gradient(sum, dy, x, /*accumulate=*/true);
    report_flops(state, 2.0 * kTokens * kDim * kHidden);
}

void norm_forward(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type), w = random({kDim}, type);
    for (auto _ : state) benchmark::DoNotOptimize(rms_norm(x, w, 1e-5));
    report_bytes(state, 2 * kTokens * kDim, type);
}

void norm_backward(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type), w = random({kDim}, type),
                     dy = random({kTokens, kDim}, type);
    const auto output = rms_norm(x, w, 1e-5);
    for (auto _ : state) benchmark::DoNotOptimize(rms_norm_backward(dy, x, w, output.inverse_rms));
    report_bytes(state, 3 * kTokens * kDim, type);
}

void rotation(benchmark::State& state, at::ScalarType type) {
    const at::Tensor x = random({kTokens, kDim}, type);
    const RopeTable table = make_rope_table(std::vector<double>(kHeadDim / 2, 0.1), kSeqLen, at::kFloat);
    for (auto _ : state) benchmark::DoNotOptimize(rope(x, table));
    report_bytes(state, 2 * kTokens * kDim, type);
}

void activation(benchmark::State& state, at::ScalarType type) {
    const at::Tensor gate = random({kTokens, kHidden}, type), up = random({kTokens, kHidden}, type);
    for (auto _ : state) benchmark::DoNotOptimize(swiglu(gate, up));
    report_bytes(state, 3 * kTokens * kHidden, type);
}

// Causal: half of the seq_len^2 scores, two products forward, five backward.
constexpr double kAttentionProduct = 2.0 * kSequences * kHeads * kSeqLen * kSeqLen * kHeadDim / 2;

void attention_forward(benchmark::State& state, at::ScalarType type) {
    const at::Tensor q = random({kTokens, kDim}, type), k = random({kTokens, kDim}, type),
                     v = random({kTokens, kDim}, type);
    for (auto _ : state) benchmark::DoNotOptimize(attention(q, k, v, {kSequences, kSeqLen, kHeadDim}));
    report_flops(state, 2 * kAttentionProduct);
}

void attention_gradient(benchmark::State& state, at::ScalarType type) {
    const AttentionShape shape{kSequences, kSeqLen, kHeadDim};
    const at::Tensor q = random({kTokens, kDim}, type), k = random({kTokens, kDim}, type),
                     v = random({kTokens, kDim}, type);
    const AttentionOutput output = attention(q, k, v, shape);
    for (auto _ : state) benchmark::DoNotOptimize(attention_backward(output.y, q, k, v, output, shape));
    report_flops(state, 5 * kAttentionProduct);
}

void loss_gradient(benchmark::State& state, at::ScalarType type) {
    const at::Tensor logits = random({512, kVocab}, type), targets = at::randint(kVocab, {512}, at::kLong);
    const at::Tensor maxima = row_maxima(logits), sums = softmax_sums(logits, maxima, targets, 0);
    for (auto _ : state)
        benchmark::DoNotOptimize(cross_entropy_gradient(logits, maxima, sums, targets, 0, 1.0));
    report_bytes(state, 2 * 512 * kVocab, type);
}

using Operation = void (*)(benchmark::State&, at::ScalarType);
constexpr std::pair<const char*, Operation> kOperations[] = {
    {"linear", linear_forward},
    {"linear_weight_gradient", linear_weight},
    {"rms_norm", norm_forward},
    {"rms_norm_backward", norm_backward},
    {"rope", rotation},
    {"swiglu", activation},
    {"attention", attention_forward},
    {"attention_backward", attention_gradient},
    {"cross_entropy_gradient", loss_gradient},
};

}  // namespace
}  // namespace argosy::ops

int main(int argc, char** argv) {
    const argosy::ops::TensorThread tensors;
    for (const auto& [name, operation] : argosy::ops::kOperations) {
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
            const std::string full_name = std::string(name) + (type == at::kFloat ? "/fp32" : "/bf16");
            benchmark::RegisterBenchmark(full_name.c_str(), operation, type)->Unit(benchmark::kMillisecond);
        }
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
