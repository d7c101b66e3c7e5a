// The choice of experts, the order of slots and their sums, and gated units whose rows have weights.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>

#include "gpu/kernel_cases.h"
#include "kernels/gpu_table.h"
#include "kernels/plain_routing.h"
#include "kernels/table.h"

namespace argosy::kernels {
namespace {

std::string words(const Router& router) {
    return fmt::format("{} of {}{}", router.top_k, router.num_experts,
                       router.num_groups > 1 ? fmt::format(" in {} groups", router.num_groups) : "");
}

int64_t num_tokens(const Router& router, int64_t elements) {
    return std::max<int64_t>(elements / router.num_experts, 3);
}

std::span<const float> row_of(const float* rows, const Router& router, int64_t token) {
    return {rows + token * router.num_experts, static_cast<size_t>(router.num_experts)};
}

void route_plainly(const Route& args) {
    for (int64_t token = 0; token < args.num_tokens; ++token) {
        const auto [experts, weights] =
            plain_route(args.router, row_of(args.logits, args.router, token), args.bias);
        std::ranges::copy(experts, args.experts + token * args.router.top_k);
        for (size_t slot = 0; slot < weights.size(); ++slot)
            args.weights[token * args.router.top_k + slot] = static_cast<float>(weights[slot]);
    }
}

void differentiate_plainly(const RouteBackward& args) {
    const auto k = static_cast<size_t>(args.router.top_k);
    for (int64_t token = 0; token < args.num_tokens; ++token) {
        const Numbers gradient =
            plain_route_backward(args.router, row_of(args.logits, args.router, token),
                                 {args.dweights + token * k, k}, {args.experts + token * k, k});
        for (size_t i = 0; i < gradient.size(); ++i)
            args.dlogits[token * args.router.num_experts + i] = static_cast<float>(gradient[i]);
    }
}

Case routes(const Router& router) {
    return {"route", words(router), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t tokens = num_tokens(router, elements), slots = tokens * router.top_k;
                const Route args = {router,
                                    tokens,
                                    memory.in<float>(tokens * router.num_experts),
                                    memory.in<float>(router.num_experts),
                                    memory.out<int32_t>(slots, 1e-9),
                                    memory.out<float>(slots)};
                return {[=](GpuStream stream) { gpu_table()->route(args, stream); },
                        [=] { route_plainly(args); }};
            }};
}

Case routes_backward(const Router& router) {
    return {"route_backward", words(router), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t tokens = num_tokens(router, elements), slots = tokens * router.top_k;
                std::vector<int32_t> experts(slots);  // a token's differ
                for (int64_t slot = 0; slot < slots; ++slot)
                    experts[slot] = static_cast<int32_t>(slot * 5 % router.num_experts);
                const RouteBackward args = {router,
                                            tokens,
                                            memory.in<float>(slots),
                                            memory.in<float>(tokens * router.num_experts),
                                            memory.narrow_ids(experts),
                                            memory.out<float>(tokens * router.num_experts)};
                return {[=](GpuStream stream) { gpu_table()->route_backward(args, stream); },
                        [=] { differentiate_plainly(args); }};
            }};
}

Case sorts(int64_t num_experts) {
    return {
        "sort_slots", fmt::format("{} experts", num_experts), [=](Slices& memory, int64_t elements) -> Run {
            const int64_t slots = std::max<int64_t>(elements / 8, 3);
            std::mt19937 engine(3);
            std::vector<int32_t> experts(slots);
            for (int32_t& one : experts) one = static_cast<int32_t>(engine() % num_experts);
            const SortSlots args = {slots, num_experts, memory.narrow_ids(experts),
                                    memory.out<int32_t>(slots, 1e-9), memory.out<int64_t>(num_experts, 1e-9)};
            memory.read_again(slots * int64_t{sizeof(int32_t)});
            void* const scratch = memory.scratch(gpu_table()->sort_slots_scratch_bytes(args));
            return {[=](GpuStream stream) { gpu_table()->sort_slots(args, scratch, stream); },
                    [=] {
                        const PlainOrder made =
                            plain_order({args.experts, static_cast<size_t>(slots)}, num_experts);
                        std::ranges::copy(made.order, args.order);
                        std::ranges::copy(made.counts, args.counts);
                    }};
        }};
}

template <class T>
Case combines(int64_t num_slots, int64_t row_size) {
    return {"combine", fmt::format("{} slots of {}", num_slots, row_size),
            [=](Slices& memory, int64_t elements) -> Run {
                const int64_t tokens = std::max<int64_t>(elements / row_size / num_slots, 3);
                std::vector<int32_t> rows(tokens * num_slots);
                std::iota(rows.begin(), rows.end(), 0);
                std::shuffle(rows.begin(), rows.end(), std::mt19937(3));
                const Combine<T> args = {tokens,
                                         row_size,
                                         num_slots,
                                         memory.narrow_ids(rows),
                                         memory.in<T>(tokens * num_slots * row_size),
                                         memory.out<T>(tokens * row_size, 1e-9)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().combine(args, stream); },
                        [=] { table().of<T>().combine(args); }};
            }};
}

template <class T>
Case weighted_glu(int64_t hidden) {
    return {"swiglu with weights", fmt::format("rows of {}", hidden),
            [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / hidden, 3);
                const T* const gate = memory.in<T>(2 * rows * hidden);
                const Glu<T> args = {Activation::Silu,
                                     rows,
                                     hidden,
                                     gate,
                                     gate + hidden,
                                     2 * hidden,
                                     memory.out<T>(rows * hidden),
                                     memory.in<float>(rows)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().glu(args, stream, nullptr); },
                        [=] { table().of<T>().glu(args); }};
            }};
}

template <class T>
Case weighted_glu_backward(int64_t hidden) {
    return {"swiglu_backward with weights", fmt::format("rows of {}", hidden),
            [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / hidden, 3);
                const T* const gate = memory.in<T>(2 * rows * hidden);
                T* const dgate = memory.out<T>(2 * rows * hidden);
                const GluBackward<T> args = {.activation = Activation::Silu,
                                             .num_rows = rows,
                                             .row_size = hidden,
                                             .dy = memory.in<T>(rows * hidden),
                                             .gate = gate,
                                             .up = gate + hidden,
                                             .dgate = dgate,
                                             .dup = dgate + hidden,
                                             .stride = 2 * hidden,
                                             .weights = memory.in<float>(rows),
                                             .dweights = memory.out<float>(rows, 1e-3)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().glu_backward(args, stream, nullptr); },
                        [=] { table().of<T>().glu_backward(args); }};
            }};
}

}  // namespace

std::vector<Case> routing_cases() {
    const Router qwen = {.num_experts = 128, .top_k = 8}, mixtral = {.num_experts = 8, .top_k = 2},
                 deepseek = {256, 8, Router::Score::Sigmoid, true, 2.5, /*num_groups=*/8, /*top_groups=*/4};
    return {routes(mixtral),
            routes(qwen),
            routes(deepseek),
            routes_backward(qwen),
            routes_backward(deepseek),
            sorts(8),
            sorts(128),
            combines<BFloat16>(2, 4096),
            combines<BFloat16>(8, 2048),
            weighted_glu<BFloat16>(768),
            weighted_glu<BFloat16>(14336),
            weighted_glu_backward<BFloat16>(768),
            weighted_glu_backward<BFloat16>(14336)};
}

}  // namespace argosy::kernels
