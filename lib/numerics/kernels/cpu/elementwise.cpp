// The kernels that go over their data once: conversions, rotary position embedding, gated linear units, sums
// over rows and of squares, the embedding table, and sums of a token's rows.
#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

template <class T>
void rotate_head(const T* x, T* y, const float* cos, const float* sin, Vector direction, int64_t half) {
    for_each_vector(half, [&](int64_t i, auto load, auto store) {
        const Vector c = load(cos + i), s = load(sin + i) * direction;
        const Vector first = load(x + i), second = load(x + half + i);
        store(y + i, first * c - second * s);
        store(y + half + i, second * c + first * s);
    });
}

/// The a of activation(gate) = gate sigmoid(a); with 3 * kGeluCubic it is gate da / dgate.
template <Activation kActivation>
Vector sigmoid_argument(Vector gate, double cubic = kGeluCubic) {
    if constexpr (kActivation == Activation::Silu) return gate;
    const Vector factor = set(static_cast<float>(cubic));
    return gate * multiply_add(factor, gate * gate, set(static_cast<float>(kGeluLinear)));
}

/// The weight of a row, in all lanes.
Vector weight_of(const float* weights, int64_t row) { return set(weights != nullptr ? weights[row] : 1.0f); }

double widened(float x) { return x; }
double widened(BFloat16 x) {
    const uint32_t bits = uint32_t{x.bits} << 16;
    float wide;
    __builtin_memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

template <class T>
double sum_of_squares(const T* all, int64_t count) {
    constexpr int kSums = 16;  // partial sums, the same number with every instruction set
    double sums[kSums] = {};
    int64_t i = 0;
    for (; i + kSums <= count; i += kSums) {
        for (int lane = 0; lane < kSums; ++lane) {
            const double x = widened(all[i + lane]);
            sums[lane] += x * x;
        }
    }
    for (int lane = 0; i < count; ++i, ++lane) {
        const double x = widened(all[i]);
        sums[lane] += x * x;
    }
    double total = 0;
    for (const double each : sums) total += each;
    return total;
}

}  // namespace

template <class T>
void widen(const Widen<T>& args) {
    for_each_vector(args.count,
                    [&](int64_t i, auto load, auto store) { store(args.to + i, load(args.from + i)); });
}

template <class T>
void narrow(const Narrow<T>& args) {
    for_each_vector(args.count,
                    [&](int64_t i, auto load, auto store) { store(args.to + i, load(args.from + i)); });
}

template void widen(const Widen<float>&);
template void widen(const Widen<BFloat16>&);
template void narrow(const Narrow<float>&);
template void narrow(const Narrow<BFloat16>&);

template <class T>
void rope(const Rope<T>& args) {
    const Vector direction = set(args.rotation == Rotation::Forward ? 1.0f : -1.0f);
    const int64_t rotated = 2 * args.half, head_size = rotated + args.num_unrotated;
    const auto unrotated_bytes = static_cast<size_t>(args.num_unrotated) * sizeof(T);
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const int64_t position =
            args.positions != nullptr ? args.positions[row] : (args.first_row + row) % args.seq_len;
        const int64_t angles = position * args.half;
        for (int64_t head = 0; head < args.num_heads; ++head) {
            const T* x = args.x + row * args.x_stride + head * head_size;
            T* y = args.y + row * args.y_stride + head * head_size;
            rotate_head(x, y, args.cos + angles, args.sin + angles, direction, args.half);
            if (x != y) __builtin_memcpy(y + rotated, x + rotated, unrotated_bytes);
        }
    }
}

template void rope(const Rope<float>&);
template void rope(const Rope<BFloat16>&);

template <class T, Activation kActivation>
void glu_of(const Glu<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const T *gates = args.gate + row * args.stride, *ups = args.up + row * args.stride;
        T* y = args.y + row * args.row_size;
        const Vector weight = weight_of(args.weights, row);
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            const Vector gate = load(gates + i);
            store(y + i, gate * sigmoid(sigmoid_argument<kActivation>(gate)) * load(ups + i) * weight);
        });
    }
}

// Let s = sigmoid(a) and b = gate da / dgate. Then d activation / d gate = s (1 + b (1 - s)).
template <class T, Activation kActivation>
void glu_backward_of(const GluBackward<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const int64_t begin = row * args.stride;
        const T *dys = args.dy + row * args.row_size, *gates = args.gate + begin, *ups = args.up + begin;
        T *dgate = args.dgate + begin, *dup = args.dup + begin;
        const Vector weight = weight_of(args.weights, row), one = set(1.0f);
        Vector dweight = set(0.0f);
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            const Vector gate = load(gates + i), up = load(ups + i), upper = load(dys + i),
                         dy = upper * weight;
            const Vector open = sigmoid(sigmoid_argument<kActivation>(gate));
            const Vector b = sigmoid_argument<kActivation>(gate, 3 * kGeluCubic);
            const Vector slope = open * multiply_add(b, one - open, one);
            store(dgate + i, slope * dy * up);
            store(dup + i, gate * open * dy);
            dweight = multiply_add(gate * open * up, upper, dweight);
        });
        if (args.dweights != nullptr) args.dweights[row] = sum(dweight);
    }
}

template <class T>
void glu(const Glu<T>& args) {
    args.activation == Activation::Silu ? glu_of<T, Activation::Silu>(args)
                                        : glu_of<T, Activation::GeluTanh>(args);
}
template <class T>
void glu_backward(const GluBackward<T>& args) {
    args.activation == Activation::Silu ? glu_backward_of<T, Activation::Silu>(args)
                                        : glu_backward_of<T, Activation::GeluTanh>(args);
}

template void glu(const Glu<float>&);
template void glu(const Glu<BFloat16>&);
template void glu_backward(const GluBackward<float>&);
template void glu_backward(const GluBackward<BFloat16>&);

template <class T>
void sum_rows(const SumRows<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const T* x = args.x + row * args.row_stride;
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            store(args.sums + i, load(args.sums + i) + load(x + i));
        });
    }
}

double squared_norm(const SquaredNorm& args) {
    return args.bf16_x == nullptr ? sum_of_squares(args.x, args.count)
                                  : sum_of_squares(args.bf16_x, args.count);
}

template void sum_rows(const SumRows<float>&);
template void sum_rows(const SumRows<BFloat16>&);

template <class T>
void embedding(const Embedding<T>& args) {
    const auto row_bytes = static_cast<uint64_t>(args.row_size) * sizeof(T);
    for (int64_t i = 0; i < args.num_tokens; ++i) {
        const int64_t row = args.tokens[i] - args.begin;
        T* x = args.x + i * args.row_size;
        if (row >= 0 && row < args.num_rows) {
            __builtin_memcpy(x, args.table + row * args.row_size, row_bytes);
        } else {
            __builtin_memset(x, 0, row_bytes);
        }
    }
}

template <class T>
void embedding_gradient(const EmbeddingGradient<T>& args) {
    for (int64_t i = 0; i < args.num_tokens; ++i) {
        const int64_t row = args.tokens[i] - args.begin;
        if (row < 0 || row >= args.num_rows) continue;
        const T* dx = args.dx + i * args.row_stride;
        float* sums = args.sums + row * args.row_stride;
        for_each_vector(args.row_size, [&](int64_t k, auto load, auto store) {
            store(sums + k, load(sums + k) + load(dx + k));
        });
    }
}

template <class T>
void combine(const Combine<T>& args) {
    for (int64_t token = 0; token < args.num_tokens; ++token) {
        const int32_t* rows = args.rows + token * args.num_slots;
        T* x = args.x + token * args.row_size;
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            Vector sum = load(args.y + rows[0] * args.row_size + i);
            for (int64_t slot = 1; slot < args.num_slots; ++slot)
                sum = sum + load(args.y + rows[slot] * args.row_size + i);
            store(x + i, sum);
        });
    }
}

template void combine(const Combine<float>&);
template void combine(const Combine<BFloat16>&);
template void embedding(const Embedding<float>&);
template void embedding(const Embedding<BFloat16>&);
template void embedding_gradient(const EmbeddingGradient<float>&);
template void embedding_gradient(const EmbeddingGradient<BFloat16>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
