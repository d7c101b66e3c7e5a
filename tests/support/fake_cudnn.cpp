// cuDNN for suites on machines without a GPU: reads the description of a call (gpu/cudnn.h) and computes it
// in fp64, one score after the other, on tensors in host memory. With ARGOSY_TEST_ATTENTION=cudnn every
// masked attention of a program is such a call.
#include "support/fake_cudnn.h"

#include <c10/util/BFloat16.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gpu/cudnn.h"

namespace argosy::gpu {
namespace {

std::atomic<int> num_calls = 0;

[[maybe_unused]] const bool is_preferred = [] {
    const char* wanted = std::getenv("ARGOSY_TEST_ATTENTION");
    if (wanted != nullptr && wanted == std::string_view("cudnn")) prefer_cudnn(true);
    return true;
}();

/// The tokens of one segment in a tensor.
template <class Element>
struct Tokens {
    Element* first;
    int64_t stride, head_dim;
    Element& operator()(int64_t token, int64_t head, int64_t i = 0) const {
        return first[token * stride + head * head_dim + i];
    }
};

template <class Element>
Tokens<Element> tokens_of(const CudnnRows& argument, int64_t segment, int64_t stride, int64_t head_dim) {
    const int64_t offset = argument.offsets.const_data_ptr<int64_t>()[segment];
    return {static_cast<Element*>(argument.rows.data_ptr()) + offset, stride, head_dim};
}

/// One segment of a call.
class Segment {
  public:
    Segment(const CudnnCall& call, int64_t index)
        : graph_(call.graph),
          num_queries_(call.query_lengths.const_data_ptr<int32_t>()[index]),
          num_keys_(call.key_lengths.const_data_ptr<int32_t>()[index]),
          q_(tokens_of<at::BFloat16>(call.q, index, graph_.q_stride, graph_.head_dim)),
          k_(tokens_of<at::BFloat16>(call.k, index, graph_.k_stride, graph_.head_dim)),
          v_(tokens_of<at::BFloat16>(call.v, index, graph_.v_stride, graph_.head_dim)),
          y_(tokens_of<at::BFloat16>(call.y, index, graph_.y_stride, graph_.head_dim)),
          log_sum_exp_(tokens_of<float>(call.log_sum_exp, index, graph_.heads, 1)) {
        if (num_queries_ > graph_.max_queries || num_keys_ > graph_.max_keys || num_queries_ < 0)
            throw RunError("a segment of {} queries and {} keys", num_queries_, num_keys_);
        if ((num_queries_ == 0) != (num_keys_ == 0) || (graph_.is_causal && num_queries_ > num_keys_))
            throw RunError("queries without a key: {} queries, {} keys", num_queries_, num_keys_);
    }

    void forward() const {
        for (int64_t head = 0; head < graph_.heads; ++head) {
            for (int64_t query = 0; query < num_queries_; ++query) forward(query, head);
        }
    }

    void backward(const CudnnCall& call, int64_t index) const {
        const int64_t d = graph_.head_dim;
        const auto dy = tokens_of<at::BFloat16>(call.dy, index, graph_.dy_stride, d);
        const auto dq = tokens_of<at::BFloat16>(call.dq, index, graph_.heads * d, d),
                   dk = tokens_of<at::BFloat16>(call.dk, index, graph_.kv_heads * d, d),
                   dv = tokens_of<at::BFloat16>(call.dv, index, graph_.kv_heads * d, d);
        for (int64_t kv_head = 0; kv_head < graph_.kv_heads; ++kv_head) {
            std::vector<double> dk_sums(num_keys_ * d), dv_sums(num_keys_ * d);
            for (int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
                for (int64_t query = 0; query < num_queries_; ++query)
                    backward(query, head, dy, dq, dk_sums, dv_sums);
            }
            for (int64_t i = 0; i < num_keys_ * d; ++i) {
                dk(i / d, kv_head, i % d) = static_cast<float>(dk_sums[i]);
                dv(i / d, kv_head, i % d) = static_cast<float>(dv_sums[i]);
            }
        }
    }

  private:
    int64_t group() const { return graph_.heads / graph_.kv_heads; }
    /// The diagonal is aligned at the bottom right; a bound at its left counts the diagonal itself.
    bool sees(int64_t query, int64_t key) const {
        const int64_t distance = query + num_keys_ - num_queries_ - key;
        if (!graph_.is_causal) return true;
        return distance >= 0 && (!graph_.window || distance < *graph_.window);
    }
    double scale() const { return 1 / std::sqrt(static_cast<double>(graph_.head_dim)); }
    double score(int64_t query, int64_t key, int64_t head) const {
        double sum = 0;
        for (int64_t i = 0; i < graph_.head_dim; ++i)
            sum += static_cast<double>(q_(query, head, i)) * static_cast<double>(k_(key, head / group(), i));
        return sum * scale();
    }

    void forward(int64_t query, int64_t head) const {
        std::vector<double> sums(graph_.head_dim);
        double total = 0;
        for (int64_t key = 0; key < num_keys_; ++key) {
            if (!sees(query, key)) continue;
            const double weight = std::exp(score(query, key, head));
            total += weight;
            for (int64_t i = 0; i < graph_.head_dim; ++i)
                sums[i] += weight * static_cast<double>(v_(key, head / group(), i));
        }
        for (int64_t i = 0; i < graph_.head_dim; ++i)
            y_(query, head, i) = static_cast<float>(sums[i] / total);
        log_sum_exp_(query, head) = static_cast<float>(std::log(total));
    }

    void backward(int64_t query, int64_t head, const Tokens<at::BFloat16>& dy, const Tokens<at::BFloat16>& dq,
                  std::vector<double>& dk, std::vector<double>& dv) const {
        const int64_t d = graph_.head_dim, kv_head = head / group();
        std::vector<double> sums(d);
        double projection = 0;
        for (int64_t i = 0; i < d; ++i)
            projection += static_cast<double>(dy(query, head, i)) * static_cast<double>(y_(query, head, i));
        for (int64_t key = 0; key < num_keys_; ++key) {
            if (!sees(query, key)) continue;
            const double weight = std::exp(score(query, key, head) - log_sum_exp_(query, head));
            double dweight = 0;
            for (int64_t i = 0; i < d; ++i) {
                dweight += static_cast<double>(dy(query, head, i)) * static_cast<double>(v_(key, kv_head, i));
                dv[key * d + i] += weight * static_cast<double>(dy(query, head, i));
            }
            const double dscore = weight * (dweight - projection) * scale();
            for (int64_t i = 0; i < d; ++i) {
                sums[i] += dscore * static_cast<double>(k_(key, kv_head, i));
                dk[key * d + i] += dscore * static_cast<double>(q_(query, head, i));
            }
        }
        for (int64_t i = 0; i < d; ++i) dq(query, head, i) = static_cast<float>(sums[i]);
    }

    const CudnnGraph& graph_;
    int64_t num_queries_, num_keys_;
    Tokens<at::BFloat16> q_, k_, v_, y_;
    Tokens<float> log_sum_exp_;
};

/// What cuDNN reads of an argument is within its tensor, as the graph describes it.
void require_as_described(const CudnnRows& argument, int64_t num_segments, int64_t num_tokens,
                          int64_t stride) {
    const auto& [rows, offsets] = argument;
    if (offsets.scalar_type() != at::kLong || !offsets.is_contiguous() || offsets.numel() != num_segments + 1)
        throw RunError("offsets of {} segments: {}", num_segments, offsets.toString());
    if (rows.size(0) != num_tokens || rows.stride(0) != stride)
        throw RunError("{} tokens, {} elements apart; described: {}, {}", rows.size(0), rows.stride(0),
                       num_tokens, stride);
    if (offsets.const_data_ptr<int64_t>()[num_segments] != num_tokens * stride)
        throw RunError("offsets do not end with the tokens");
}

void require_as_described(const CudnnCall& call) {
    const CudnnGraph& graph = call.graph;
    const auto queries = [&](const CudnnRows& argument, int64_t stride) {
        require_as_described(argument, graph.num_segments, graph.num_queries, stride);
    };
    const auto keys = [&](const CudnnRows& argument, int64_t stride) {
        require_as_described(argument, graph.num_segments, graph.num_keys, stride);
    };
    queries(call.q, graph.q_stride);
    queries(call.y, graph.y_stride);
    queries(call.log_sum_exp, graph.heads);
    keys(call.k, graph.k_stride);
    keys(call.v, graph.v_stride);
    if (!graph.is_backward) return;
    queries(call.dy, graph.dy_stride);
    queries(call.dq, graph.heads * graph.head_dim);
    keys(call.dk, graph.kv_heads * graph.head_dim);
    keys(call.dv, graph.kv_heads * graph.head_dim);
}

}  // namespace

bool cudnn_has(const CudnnGraph& graph) { return !graph.is_deterministic; }

void run_cudnn(const CudnnCall& call) {
    ++num_calls;
    require_as_described(call);
    for (int64_t index = 0; index < call.graph.num_segments; ++index) {
        const Segment segment(call, index);
        call.graph.is_backward ? segment.backward(call, index) : segment.forward();
    }
}

}  // namespace argosy::gpu

int argosy::testing::num_cudnn_calls() { return gpu::num_calls; }
