#include "gpu/kernel_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/gpu_table.h"
#include "kernels/table.h"

namespace argosy::kernels {

void* Slices::take(size_t bytes, int times) {
    const size_t offset = used_;
    used_ = (offset + bytes + 255) / 256 * 256;
    ARGOSY_CHECK(used_ <= size_, "{} bytes of {}", used_, size_);
    traffic_bytes_ += bytes * times;
    return begin_ + offset;
}

const int64_t* Slices::ids(std::vector<int64_t> values) {
    auto* const to = static_cast<int64_t*>(take(values.size() * sizeof(int64_t), 1));
    ids_.push_back({static_cast<size_t>(reinterpret_cast<std::byte*>(to) - begin_), std::move(values)});
    return to;
}

const int64_t* Slices::ids(int64_t count, int64_t limit) {
    std::mt19937_64 engine(17);
    std::vector<int64_t> values(count);
    for (int64_t& each : values) each = static_cast<int64_t>(engine() % static_cast<uint64_t>(limit));
    return ids(std::move(values));
}

const int32_t* Slices::narrow_ids(const std::vector<int32_t>& values) {
    std::vector<int64_t> pairs((values.size() + 1) / 2);
    std::memcpy(pairs.data(), values.data(), values.size() * sizeof(int32_t));
    return reinterpret_cast<const int32_t*>(ids(std::move(pairs)));
}

namespace {

template <class T>
double value(T x) {
    float wide;
    table().of<T>().widen({1, &x, &wide});
    return wide;
}
template <>
double value(double x) {
    return x;
}
template <>
double value(uint8_t x) {  // float8: the bits are compared
    return x;
}
template <>
double value(int32_t x) {
    return x;
}
template <>
double value(int64_t x) {
    return static_cast<double>(x);
}

/// Tolerance of a result that is rounded to T.
template <class T>
constexpr double kRounding = std::is_same_v<T, BFloat16> ? 1.0 / 64 : 1e-4;

template <class T>
const char* const kName = std::is_same_v<T, BFloat16> ? "bf16" : "fp32";

template <class T>
std::string by_rows(int64_t row_size) {
    return fmt::format("rows of {}, {}", row_size, kName<T>);
}

}  // namespace

template <class T>
T* Slices::output(int64_t count, int times, double tolerance) {
    T* const to = static_cast<T*>(take(count * sizeof(T), times));
    const auto largest_error = [count](const std::byte* found, const std::byte* expected) {
        double largest = 0;
        for (int64_t i = 0; i < count; ++i) {
            const double a = value(reinterpret_cast<const T*>(found)[i]);
            const double b = value(reinterpret_cast<const T*>(expected)[i]);
            const double error = std::abs(a - b) / std::max(1.0, std::abs(b));
            if (!(error <= largest)) largest = error;
        }
        return largest;
    };
    outputs_.push_back({.offset = static_cast<size_t>(reinterpret_cast<std::byte*>(to) - begin_),
                        .tolerance = tolerance != 0 ? tolerance : kRounding<T>,
                        .largest_error = largest_error});
    return to;
}

template uint8_t* Slices::output(int64_t, int, double);
template int32_t* Slices::output(int64_t, int, double);
template int64_t* Slices::output(int64_t, int, double);

float* Slices::zeros_for_launches(int64_t count, double tolerance) {
    auto* const to = output<float>(count * kLaunches, 0, tolerance);
    traffic_bytes_ += count * sizeof(float);
    ids_.push_back({outputs_.back().offset, std::vector<int64_t>((count * kLaunches + 1) / 2)});
    return to;
}

namespace {

/// Whether a kernel finds the largest magnitude of its result too.
enum class Finds { Nothing, Largest };
std::string with(const std::string& kernel, Finds finds) {
    return finds == Finds::Largest ? fmt::format("{} and its largest", kernel) : kernel;
}

/// `on_gpu` takes a stream and where a launch puts the largest magnitude of its result, which is `result` on
/// the processor.
template <class T, class OnGpu, class OnProcessor>
Run finding(Finds finds, Slices& memory, const T* result, int64_t count, OnGpu on_gpu,
            OnProcessor on_processor) {
    if (finds == Finds::Nothing) return {[=](GpuStream stream) { on_gpu(stream, nullptr); }, on_processor};
    float* const largest = memory.zeros_for_launches(1, kRounding<T>);
    return {[=, launch = int64_t{0}](GpuStream stream) mutable {
                on_gpu(stream, largest + launch++ % Slices::kLaunches);
            },
            [=] {
                on_processor();
                table().of<T>().largest_magnitudes({{result, 1, count, count, 1, count}, largest, 1});
            }};
}

constexpr float kWeightOffset = 1;  // of the norms; costs the same as none

template <class T>
Case rms_norm(int64_t row_size, Finds finds = Finds::Nothing) {
    return {with("rms_norm", finds), by_rows<T>(row_size), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / row_size, 3), count = rows * row_size;
                const RmsNorm<T> args = {rows,
                                         row_size,
                                         memory.in<T>(count),
                                         memory.in<T>(row_size),
                                         1e-5F,
                                         memory.out<T>(count),
                                         memory.out<float>(rows),
                                         {},
                                         kWeightOffset};
                return finding(
                    finds, memory, args.y, count,
                    [=](GpuStream stream, float* largest) {
                        gpu_table()->of<T>().rms_norm(args, stream, largest);
                    },
                    [=] { table().of<T>().rms_norm(args); });
            }};
}

template <class T>
Case rms_norm_backward(int64_t row_size) {
    return {"rms_norm_backward with residual", by_rows<T>(row_size),
            [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / row_size, 3), count = rows * row_size;
                const RmsNormBackward<T> args = {rows,
                                                 row_size,
                                                 memory.in<T>(count),
                                                 memory.in<T>(count),
                                                 memory.in<T>(row_size),
                                                 memory.in<float>(rows),
                                                 memory.in<T>(count),
                                                 memory.out<T>(count),
                                                 memory.in_out<float>(row_size, 1e-3),
                                                 {},
                                                 {},
                                                 kWeightOffset};
                const auto& gpu = gpu_table()->of<T>();
                void* const scratch = memory.scratch(gpu.rms_norm_backward_scratch_bytes(args));
                return {[=, &gpu](GpuStream stream) { gpu.rms_norm_backward(args, scratch, stream); },
                        [=] { table().of<T>().rms_norm_backward(args); }};
            }};
}

template <class T>
Case rope(int64_t num_heads, int64_t head_dim, int64_t num_unrotated = 0) {
    const bool in_place = num_unrotated == 0;
    return {in_place ? "rope in place" : "rope of part of a head",
            fmt::format("{} heads of {}, {}", num_heads, head_dim, kName<T>),
            [=](Slices& memory, int64_t elements) -> Run {
                constexpr int64_t kSeqLen = 4096;
                const int64_t stride = num_heads * head_dim, half = (head_dim - num_unrotated) / 2;
                const int64_t rows = std::max<int64_t>(elements / stride, 3);
                const float* const cos = memory.in<float>(kSeqLen * half);
                const float* const sin = memory.in<float>(kSeqLen * half);
                T* const x = memory.in_out<T>(rows * stride);
                T* const y = in_place ? x : memory.out<T>(rows * stride);
                const Rope<T> args = {rows, num_heads, half,   0, kSeqLen, Rotation::Forward, cos,
                                      sin,  x,         stride, y, stride,  nullptr,           num_unrotated};
                return {[=](GpuStream stream) { gpu_table()->of<T>().rope(args, stream); },
                        [=] { table().of<T>().rope(args); }};
            }};
}

/// Gate and up side by side, as in the model.
constexpr int64_t kHidden = 4864;

const char* name_of(Activation activation) { return activation == Activation::Silu ? "swiglu" : "geglu"; }

template <class T>
Case glu(Activation activation, Finds finds = Finds::Nothing) {
    return {
        with(name_of(activation), finds), kName<T>, [=](Slices& memory, int64_t elements) -> Run {
            const int64_t rows = std::max<int64_t>(elements / kHidden, 3), stride = 2 * kHidden;
            const T* const gate = memory.in<T>(rows * stride);
            const Glu<T> args = {
                activation, rows, kHidden, gate, gate + kHidden, stride, memory.out<T>(rows * kHidden)};
            return finding(
                finds, memory, args.y, rows * kHidden,
                [=](GpuStream stream, float* largest) { gpu_table()->of<T>().glu(args, stream, largest); },
                [=] { table().of<T>().glu(args); });
        }};
}

template <class T>
Case glu_backward(Activation activation, Finds finds = Finds::Nothing) {
    return {with(std::string(name_of(activation)) + "_backward", finds), kName<T>,
            [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / kHidden, 3), stride = 2 * kHidden;
                const T* const dy = memory.in<T>(rows * kHidden);
                const T* const gate = memory.in<T>(rows * stride);
                T* const dgate = memory.out<T>(rows * stride);
                const GluBackward<T> args = {activation,     rows,  kHidden,         dy,    gate,
                                             gate + kHidden, dgate, dgate + kHidden, stride};
                return finding(
                    finds, memory, args.dgate, rows * stride,
                    [=](GpuStream stream, float* largest) {
                        gpu_table()->of<T>().glu_backward(args, stream, largest);
                    },
                    [=] { table().of<T>().glu_backward(args); });
            }};
}

template <class T>
Case widen() {
    return {"widen", kName<T>, [=](Slices& memory, int64_t elements) -> Run {
                const Widen<T> args = {elements, memory.in<T>(elements), memory.out<float>(elements)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().widen(args, stream); },
                        [=] { table().of<T>().widen(args); }};
            }};
}

template <class T>
Case narrow() {
    return {"narrow", kName<T>, [=](Slices& memory, int64_t elements) -> Run {
                const Narrow<T> args = {elements, memory.in<float>(elements), memory.out<T>(elements)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().narrow(args, stream); },
                        [=] { table().of<T>().narrow(args); }};
            }};
}

template <class T>
Case sum_rows(int64_t row_size) {
    return {"sum_rows", by_rows<T>(row_size), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / row_size, 3);
                const SumRows<T> args = {rows, row_size, row_size, memory.in<T>(rows * row_size),
                                         memory.in_out<float>(row_size, 1e-3)};
                const auto& gpu = gpu_table()->of<T>();
                void* const scratch = memory.scratch(gpu.sum_rows_scratch_bytes(args));
                return {[=, &gpu](GpuStream stream) { gpu.sum_rows(args, scratch, stream); },
                        [=] { table().of<T>().sum_rows(args); }};
            }};
}

template <class T>
Case softmax_sums(int64_t num_columns) {
    return {"softmax_sums", by_rows<T>(num_columns), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / num_columns, 3);
                const SoftmaxSums<T> args = {rows,
                                             num_columns,
                                             0,
                                             memory.in<T>(rows * num_columns),
                                             memory.ids(rows, num_columns),
                                             memory.out<float>(rows),
                                             memory.out<float>(rows),
                                             memory.out<float>(rows)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().softmax_sums(args, stream); },
                        [=] { table().of<T>().softmax_sums(args); }};
            }};
}

template <class T>
Case cross_entropy_gradient(int64_t num_columns) {
    return {"cross_entropy_gradient", by_rows<T>(num_columns), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / num_columns, 3);
                const int64_t* const targets = memory.ids(rows, num_columns);
                const float* const maxima = memory.in<float>(rows);
                const float* const exponentials = memory.in<float>(rows);
                const float* const scale = memory.in<float>(1);
                const CrossEntropyGradient<T> args = {
                    rows,   num_columns,  0,     targets,
                    maxima, exponentials, scale, memory.in_out<T>(rows * num_columns)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().cross_entropy_gradient(args, stream); },
                        [=] { table().of<T>().cross_entropy_gradient(args); }};
            }};
}

/// Both passes in one launch; the second read of the logits counts, although the cache may hold them.
template <class T>
Case cross_entropy(int64_t num_columns) {
    return {"cross_entropy", by_rows<T>(num_columns), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / num_columns, 3);
                const int64_t* const targets = memory.ids(rows, num_columns);
                const float* const scale = memory.in<float>(1);
                T* const logits = memory.in_out<T>(rows * num_columns);
                memory.read_again(rows * num_columns * sizeof(T));
                float* const maxima = memory.out<float>(rows);
                float* const exponentials = memory.out<float>(rows);
                float* const target_logits = memory.out<float>(rows);
                const auto on_gpu = [=](GpuStream stream) {
                    gpu_table()->of<T>().cross_entropy(
                        {rows, num_columns, targets, scale, logits, maxima, exponentials, target_logits},
                        stream);
                };
                return {on_gpu, [=] {
                            const auto& kernels = table().of<T>();
                            kernels.softmax_sums(
                                {rows, num_columns, 0, logits, targets, maxima, exponentials, target_logits});
                            kernels.cross_entropy_gradient(
                                {rows, num_columns, 0, targets, maxima, exponentials, scale, logits});
                        }};
            }};
}

/// Each token occurs so many times.
template <class T>
Case embedding_gradient(int64_t row_size, int64_t times) {
    return {"embedding_gradient", fmt::format("{}, each token {} x", by_rows<T>(row_size), times),
            [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(elements / row_size / times / (times == 1 ? 2 : 1), 3),
                              num_tokens = times * rows;
                std::vector<int64_t> sorted(num_tokens), positions(num_tokens);
                for (int64_t i = 0; i < num_tokens; ++i) sorted[i] = i / times, positions[i] = i;
                std::vector<int64_t> tokens = sorted;
                std::shuffle(tokens.begin(), tokens.end(), std::mt19937(23));
                std::ranges::stable_sort(positions, {}, [&](int64_t i) { return tokens[i]; });
                EmbeddingGradient<T> args = {num_tokens,
                                             row_size,
                                             0,
                                             rows,
                                             row_size,
                                             memory.ids(std::move(sorted)),
                                             memory.in<T>(num_tokens * row_size),
                                             memory.in_out<float>(rows * row_size)};
                const int64_t* const order = memory.ids(std::move(positions));
                const int64_t* const unsorted = memory.ids(std::move(tokens));
                return {
                    [=](GpuStream stream) { gpu_table()->of<T>().embedding_gradient(args, order, stream); },
                    [=]() mutable {
                        args.tokens = unsorted;
                        table().of<T>().embedding_gradient(args);
                    }};
            }};
}

template <class T>
Case embedding(int64_t row_size) {
    return {"embedding", by_rows<T>(row_size), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t tokens = std::max<int64_t>(elements / row_size, 3), rows = tokens;
                const Embedding<T> args = {tokens,
                                           row_size,
                                           0,
                                           rows,
                                           memory.ids(tokens, rows),
                                           memory.in<T>(rows * row_size),
                                           memory.out<T>(tokens * row_size)};
                return {[=](GpuStream stream) { gpu_table()->of<T>().embedding(args, stream); },
                        [=] { table().of<T>().embedding(args); }};
            }};
}

Case squared_norms(bool narrow) {
    return {"squared_norms", narrow ? "bf16" : "fp32", [=](Slices& memory, int64_t elements) -> Run {
                const std::vector<SquaredNorm> tensors = {{elements,
                                                           narrow ? nullptr : memory.in<float>(elements),
                                                           narrow ? memory.in<BFloat16>(elements) : nullptr}};
                double* const norm = memory.out<double>(1, 1e-6);
                void* const scratch = memory.scratch(gpu_table()->squared_norms_scratch_bytes(tensors));
                return {[=](GpuStream stream) { gpu_table()->squared_norms(tensors, norm, scratch, stream); },
                        [=] { *norm = table().squared_norm(tensors[0]); }};
            }};
}

/// The sum of a later microbatch.
Case add_rounded() {
    return {"add_rounded", "bf16 + fp32", [](Slices& memory, int64_t elements) -> Run {
                const AddRounded addition = {
                    .size = elements,
                    .first_element = 0,
                    .first_number = reinterpret_cast<const uint64_t*>(memory.ids(1, 9)),
                    .number = 3,
                    .rounding_key = {5, 7},
                    .accumulate = true,
                    .term = memory.in<float>(elements),
                    .sum = memory.in_out<BFloat16>(elements)};
                const AddRoundedRows rows = {addition, elements, elements};
                return {[=](GpuStream stream) { gpu_table()->add_rounded(rows, stream); },
                        [=] { table().add_rounded(rows.addition); }};
            }};
}

/// Weights and moments in fp32 with a bf16 copy, or in bf16, with a gradient in fp32 or bf16.
Case adamw(bool narrow, bool narrow_gradient) {
    return {"adamw",
            narrow_gradient ? "states and gradients in bf16"
            : narrow        ? "states in bf16"
                            : "states in fp32, a bf16 copy",
            [=](Slices& memory, int64_t elements) -> Run {
                const int64_t count = elements / (narrow ? 1 : 2);
                const auto state = [&](uint32_t key) -> FloatOrBFloat16 {
                    if (narrow) return {nullptr, memory.in_out<BFloat16>(count), {key, 7}};
                    return {memory.in_out<float>(count), nullptr, {key, 7}};
                };
                AdamW update = {.size = count, .first_element = 0, .update_number = 3};
                if (narrow_gradient) update.bf16_gradient = memory.in<BFloat16>(count);
                if (!narrow_gradient) update.gradient = memory.in<float>(count);
                update.weights = state(1), update.first_moments = state(2);
                // With beta2 = 0 the second moments are squares, independent of their previous values.
                update.second_moments = state(3);
                update.bf16_copy = narrow ? nullptr : memory.out<BFloat16>(count);
                update.gradient_factor = 1, update.decay_factor = 0.999F, update.step_size = 1e-3F;
                update.root_factor = 1, update.beta2 = 0;
                update.one_minus_beta1 = 0.1F, update.one_minus_beta2 = 1, update.eps = 1e-8F;
                const std::vector<AdamWRows> rows = {{update, count, count}};
                return {[=](GpuStream stream) { gpu_table()->adamw(rows, stream); },
                        [=] { table().adamw(rows[0].update); }};
            }};
}

}  // namespace

std::vector<Case> all_cases() {
    std::vector<Case> cases = {rms_norm<BFloat16>(64),
                               rms_norm<BFloat16>(128),
                               rms_norm<BFloat16>(896),
                               rms_norm<BFloat16>(1536),
                               rms_norm<BFloat16>(2048),
                               rms_norm<BFloat16>(3584),
                               rms_norm<BFloat16>(4096),
                               rms_norm<BFloat16>(8192),
                               rms_norm<float>(4096),
                               rms_norm<BFloat16>(3584, Finds::Largest),
                               rms_norm<BFloat16>(4096, Finds::Largest),
                               rms_norm_backward<BFloat16>(64),
                               rms_norm_backward<BFloat16>(128),
                               rms_norm_backward<BFloat16>(896),
                               rms_norm_backward<BFloat16>(1536),
                               rms_norm_backward<BFloat16>(2048),
                               rms_norm_backward<BFloat16>(3584),
                               rms_norm_backward<BFloat16>(4096),
                               rms_norm_backward<BFloat16>(8192),
                               rms_norm_backward<float>(4096),
                               rope<BFloat16>(14, 64),
                               rope<BFloat16>(2, 64),
                               rope<BFloat16>(32, 128),
                               rope<float>(32, 128),
                               rope<BFloat16>(24, 128, 32),
                               glu<BFloat16>(Activation::Silu),
                               glu<float>(Activation::Silu),
                               glu_backward<BFloat16>(Activation::Silu),
                               glu_backward<float>(Activation::Silu),
                               glu<BFloat16>(Activation::Silu, Finds::Largest),
                               glu_backward<BFloat16>(Activation::Silu, Finds::Largest),
                               glu<BFloat16>(Activation::GeluTanh),
                               glu<float>(Activation::GeluTanh),
                               glu_backward<BFloat16>(Activation::GeluTanh),
                               glu_backward<float>(Activation::GeluTanh),
                               widen<BFloat16>(),
                               narrow<BFloat16>(),
                               sum_rows<BFloat16>(896),
                               sum_rows<BFloat16>(4096),
                               sum_rows<BFloat16>(4608),  // biases of q, k and v of a 7B
                               softmax_sums<BFloat16>(152064),
                               cross_entropy_gradient<BFloat16>(152064),
                               cross_entropy<BFloat16>(32000),
                               cross_entropy<BFloat16>(152064),
                               embedding<BFloat16>(896),
                               embedding<BFloat16>(3584),
                               embedding<BFloat16>(4096),
                               embedding_gradient<BFloat16>(896, 4),
                               embedding_gradient<BFloat16>(3584, 1),
                               embedding_gradient<BFloat16>(3584, 4),
                               embedding_gradient<BFloat16>(4096, 4),
                               squared_norms(false),
                               squared_norms(true),
                               add_rounded(),
                               adamw(false, false),
                               adamw(true, false),
                               adamw(true, true)};
    for (const std::vector<Case>& more : {float8_cases(), routing_cases()})
        cases.insert(cases.end(), more.begin(), more.end());
    return cases;
}

}  // namespace argosy::kernels
