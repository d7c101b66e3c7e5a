// Softmax cross-entropy, row by row. One pass over the logits computes the sums of a row, another pass the
// gradient.
#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

constexpr int64_t kBlock = 1024;  // columns, which stay in the L1 cache from their maximum to their sum
constexpr float kLowest = -3.4028235e38f;

template <class T>
float widened(const T* x) {
    return sum(load_first(x, 1));
}

template <class T>
Vector largest_of(const T* x, int64_t size, Vector so_far) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) so_far = max(load(x + i), so_far);
    for (; i < size; ++i) so_far = max(set(widened(x + i)), so_far);
    return so_far;
}

/// The sum of exp(x - shift), spread over the lanes.
template <class T>
Vector sum_of_exponentials(const T* x, int64_t size, Vector shift) {
    Vector total = set(0.0f);
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) total = total + exponential(load(x + i) - shift);
    if (const int64_t rest = size - i; rest > 0) {
        float last[kLanes] = {};
        store_first(last, exponential(load_first(x + i, rest) - shift), rest);
        total = total + load(last);
    }
    return total;
}

struct RowSums {
    float maximum, exponentials;
};

/// Computes the sums of a row in one pass. When a block raises the maximum, the sum so far is scaled down.
template <class T>
RowSums row_sums(const T* x, int64_t size) {
    Vector largest_yet = set(-__builtin_inff()), total = set(0.0f);
    float shift = kLowest;  // the maximum, but finite: columns of -inf add nothing
    for (int64_t begin = 0; begin < size; begin += kBlock) {
        const int64_t count = size - begin < kBlock ? size - begin : kBlock;
        largest_yet = largest_of(x + begin, count, largest_yet);
        const float maximum = largest(largest_yet);
        const float raised = maximum > kLowest ? maximum : kLowest;
        if (raised != shift) total = total * exponential(set(shift - raised));
        shift = raised;
        total = total + sum_of_exponentials(x + begin, count, set(shift));
    }
    return {largest(largest_yet), sum(total)};
}

bool within(int64_t column, int64_t num_columns) { return column >= 0 && column < num_columns; }

template <class T>
void row_gradient(T* x, int64_t size, float maximum, float factor) {
    for_each_vector(size, [&](int64_t i, auto load, auto store) {
        store(x + i, exponential(load(x + i) - set(maximum)) * set(factor));
    });
}

}  // namespace

template <class T>
void softmax_sums(const SoftmaxSums<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const T* x = args.logits + row * args.num_columns;
        const RowSums sums = row_sums(x, args.num_columns);
        args.maxima[row] = sums.maximum;
        args.exponentials[row] = sums.exponentials;
        const int64_t target = args.targets[row] - args.begin;
        const bool present = args.targets[row] >= 0 && within(target, args.num_columns);
        args.target_logits[row] = present ? widened(x + target) : 0.0f;
    }
}

template <class T>
void cross_entropy_gradient(const CrossEntropyGradient<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        T* x = args.logits + row * args.num_columns;
        if (args.targets[row] < 0) {
            for_each_vector(args.num_columns, [&](int64_t i, auto, auto store) { store(x + i, set(0.0f)); });
            continue;
        }
        const float maximum = args.maxima[row], factor = *args.scale / args.exponentials[row];
        const int64_t target = args.targets[row] - args.begin;
        const bool present = within(target, args.num_columns);
        const float target_logit = present ? widened(x + target) : 0.0f;
        row_gradient(x, args.num_columns, maximum, factor);
        if (!present) continue;
        const Vector softmax = exponential(set(target_logit - maximum)) * set(factor);
        store_first(x + target, softmax - set(*args.scale), 1);
    }
}

template void softmax_sums(const SoftmaxSums<float>&);
template void softmax_sums(const SoftmaxSums<BFloat16>&);
template void cross_entropy_gradient(const CrossEntropyGradient<float>&);
template void cross_entropy_gradient(const CrossEntropyGradient<BFloat16>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
