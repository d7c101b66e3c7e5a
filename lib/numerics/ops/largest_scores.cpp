#include "ops/largest_scores.h"

#include <algorithm>
#include <numeric>

#include "ops/kernel_calls.h"

namespace argosy::ops {
namespace {

template <class Sum, class T>
Sum product(const T* a, const T* b, int64_t size) {
    constexpr int kLanes = 8;  // sums that do not wait for each other
    Sum sums[kLanes] = {};
    for (int64_t i = 0; i < size; ++i) sums[i % kLanes] += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
    return std::accumulate(sums, sums + kLanes, Sum{0});
}

/// The largest score of a head; the threshold if none is above it.
template <class T, class Sum>
Sum largest_score(const kernels::LargestScores<T, Sum>& args, int64_t head, Sum scale) {
    kernels::AttentionShape shape = args.shape;  // of each sequence in turn
    const T* q = args.q.data + head * shape.head_dim;
    const T* k = args.k.data + head / shape.num_heads * shape.head_dim;
    const Sum* log_sum_exp = args.log_sum_exp + head * shape.num_queries;
    Sum largest = args.threshold;
    for (int64_t sequence = 0; sequence < args.num_sequences; ++sequence) {
        for (int64_t query = 0; query < shape.num_queries; ++query) {
            if (!(log_sum_exp[query] > largest)) continue;
            const int64_t end = std::min(shape.query_offset + query + 1, shape.num_keys);
            for (int64_t key = shape.first_key(query); key < end; ++key) {
                const Sum sum =
                    product<Sum>(q + query * args.q.stride, k + key * args.k.stride, shape.head_dim);
                largest = std::max(largest, scale * sum);
            }
        }
        q += shape.num_queries * args.q.stride, k += shape.num_keys * args.k.stride;
        log_sum_exp += args.num_key_heads * shape.num_heads * shape.num_queries;
        if (shape.positions != nullptr) shape.positions += shape.num_queries;
    }
    return largest;
}

template <class T, class Sum>
kernels::LargestScores<T, Sum> arguments(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& log_sum_exp, const AttentionShape& shape,
                                         const at::Tensor& positions) {
    return {.num_sequences = shape.num_sequences,
            .num_key_heads = k.size(1) / shape.head_dim,
            .shape = {.num_queries = shape.q_len,
                      .num_keys = shape.k_len,
                      .head_dim = shape.head_dim,
                      .num_heads = q.size(1) / k.size(1),
                      .scale = static_cast<float>(shape.scale()),
                      .query_offset = shape.q_offset,
                      .window = shape.window,
                      .positions = first_element<int64_t>(positions)},
            .q = {first_element<T>(q), q.stride(0)},
            .k = {first_element<T>(k), k.stride(0)},
            .log_sum_exp = elements<Sum>(log_sum_exp),
            .threshold = static_cast<Sum>(shape.watch.threshold),
            .largest = mutable_elements<Sum>(shape.watch.largest)};
}

template <class T, class Sum>
void raise_on_processor(const at::Tensor& q, const kernels::LargestScores<T, Sum>& args, double scale) {
    const int64_t num_heads = args.num_key_heads * args.shape.num_heads;
    run_on_parts(q, num_heads, /*min_per_thread=*/1, [&](int64_t begin, int64_t end) {
        for (int64_t head = begin; head < end; ++head) {
            const Sum found = largest_score(args, head, static_cast<Sum>(scale));
            if (found > args.threshold) args.largest[head] = std::max(args.largest[head], found);
        }
    });
}

}  // namespace

void raise_largest_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& log_sum_exp,
                          const AttentionShape& shape, const at::Tensor& positions) {
    const at::Tensor rows = with_dense_rows(q), columns = with_dense_rows(k), sums = log_sum_exp.contiguous(),
                     dense_positions = positions.defined() ? positions.contiguous() : positions;
    const auto args = [&]<class T, class Sum>(T, Sum) {
        return arguments<T, Sum>(rows, columns, sums, shape, dense_positions);
    };
    if (q.scalar_type() == at::kDouble) return raise_on_processor(q, args(0.0, 0.0), shape.scale());
    with_element_type(q.scalar_type(), [&]<class T>(T) {
        using Element = std::conditional_t<std::is_same_v<T, float>, float, at::BFloat16>;
        if (gpu::holds(q)) {
            gpu_kernels<T>().largest_scores(args(T{}, float{}), gpu::current_stream());
        } else {
            raise_on_processor(q, args(Element{}, float{}), shape.scale());
        }
    });
}

}  // namespace argosy::ops
