// The cost of updating 2^22 elements, beside LibTorch's fused AdamW with the pass that makes the copy for
// computation. The figure is bytes/s, counting everything that is read and written once.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include "ops/ops_context.h"
#include "train/adamw.h"

namespace argosy::train {
namespace {

constexpr int64_t kSize = 1 << 22;

struct Types {
    const char* name;
    at::ScalarType weights, compute, moments;
};
constexpr Types kTypes[] = {{"fp32", at::kFloat, at::kFloat, at::kFloat},
                            {"bf16_mixed", at::kFloat, at::kBFloat16, at::kFloat},
                            {"bf16_mixed_and_states", at::kFloat, at::kBFloat16, at::kBFloat16},
                            {"pure_bf16", at::kBFloat16, at::kBFloat16, at::kFloat},
                            {"pure_bf16_and_states", at::kBFloat16, at::kBFloat16, at::kBFloat16}};

void report(benchmark::State& state, const Types& types) {
    const auto size = [](at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); };
    const int64_t copy = types.compute == types.weights ? 0 : size(types.compute);
    const int64_t bytes = 2 * size(types.weights) + 4 * size(types.moments) + 4 + copy;
    state.SetBytesProcessed(state.iterations() * kSize * bytes);
    state.SetItemsProcessed(state.iterations() * kSize);
}

void own(benchmark::State& state, const Types& types) {
    const ops::OpsContext context;
    const at::Tensor weights = at::randn({kSize}).to(types.weights), gradient = at::randn({kSize});
    const at::Tensor compute = types.compute == types.weights ? weights : at::empty({kSize}, types.compute);
    AdamW optimizer({.moments = types.moments}, {{.name = "p",
                                                  .rows = {.length = kSize},
                                                  .weights = weights,
                                                  .compute = compute,
                                                  .gradient = gradient,
                                                  .weight_decay = 0.1}});
    for (int64_t number = 0; auto _ : state) optimizer.update({++number, 1e-3, 1});
    report(state, types);
}

void libtorch(benchmark::State& state, const Types& types) {
    const ops::OpsContext context;
    const at::Tensor weights = at::randn({kSize}), gradient = at::randn({kSize});
    const at::Tensor first = at::zeros({kSize}), second = at::zeros({kSize});
    const at::Tensor compute = at::empty({kSize}, types.compute), factor = at::full({}, 0.5, at::kDouble);
    const at::Tensor number = at::ones({}, at::kFloat), skip = at::zeros({}, at::kFloat);
    for (auto _ : state) {
        gradient.mul_(factor);
        at::_fused_adamw_({weights}, {gradient}, {first}, {second}, {}, {number}, 1e-3, 0.9, 0.95, 0.1, 1e-8,
                          false, false, std::nullopt, skip);
        if (types.compute != types.weights) compute.copy_(weights);
    }
    report(state, types);
}

const bool kRegistered = [] {
    for (const Types& types : kTypes) {
        benchmark::RegisterBenchmark((std::string("adamw/") + types.name).c_str(), own, types);
    }
    for (const Types& types : {kTypes[0], kTypes[1]}) {
        benchmark::RegisterBenchmark((std::string("adamw_libtorch/") + types.name).c_str(), libtorch, types);
    }
    return true;
}();

}  // namespace
}  // namespace argosy::train
