// A GPU for suites on machines without one: tensors stay in host memory, and every one of them counts as the
// GPU's. Links before the product's archives, with fake_cuda.cpp.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/device.h"
#include "cuda/stream.h"
#include "gpu/attention.h"
#include "gpu/cudnn.h"
#include "gpu/device.h"
#include "gpu/graph.h"
#include "support/fake_allocator.h"
#include "support/fake_gpus.h"
#include "support/work_log.h"

namespace argosy::gpu {
namespace {

constexpr double kNoDropout = 0;
constexpr bool kCausal = true;

[[maybe_unused]] const bool shares_memory = testing::fake_gpus().shares_memory = true;

/// LibTorch computes on the CPU at once, so the product's own work must keep its order relative to it.
cuda::Stream& stream() {
    const auto make = [] {
        cuda::Stream made;
        testing::make_waiting(made.handle());
        return made;
    };
    thread_local cuda::Stream own = make();
    return own;
}

/// The CPU's kernel needs as many key heads as query heads.
at::Tensor repeated(const at::Tensor& k, const at::Tensor& q) {
    return k.repeat_interleave(q.size(1) / k.size(1), /*dim=*/1);
}

at::Tensor summed(const at::Tensor& dk, const at::Tensor& k) {
    return dk.view({k.size(0), k.size(1), -1, k.size(2), k.size(3)}).sum(2);
}

void require_recordable(const std::vector<std::string>& log) {
    for (const std::string& one : log) {
        if (one.starts_with("aten::_local_scalar_dense"))
            throw RunError("a graph's work reads a number on the host");
    }
}

void require_same(const std::vector<std::string>& recorded, const std::vector<std::string>& log) {
    const auto [then, now] = std::ranges::mismatch(recorded, log);
    if (then == recorded.end() && now == log.end()) return;
    throw RunError("a graph's work differs from what was recorded, at {} of {}: '{}' then, '{}' now",
                   then - recorded.begin(), recorded.size(), then == recorded.end() ? "" : *then,
                   now == log.end() ? "" : *now);
}

}  // namespace

c10::Device use(int number) {
    cuda::set_device(number);
    testing::install_fake_allocator();
    return c10::kCPU;
}

bool holds(const at::Tensor& x) {
    return x.is_cpu() && !testing::fake_gpus().host_tensors.contains(x.const_data_ptr());
}
void synchronize() { stream().synchronize(); }
void free_cached_memory() {}
CUstream_st* current_stream() { return stream().handle(); }

bool supports_attention(const at::Tensor& q) { return q.scalar_type() != at::kDouble; }

Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    auto [y, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(q, repeated(k, q), repeated(v, q),
                                                                            kNoDropout, kCausal);
    return {y, log_sum_exp, {}, {}};
}

AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const Attention& forward) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, q, repeated(k, q), repeated(v, q), forward.y, forward.log_sum_exp, kNoDropout, kCausal);
    return {dq, summed(dk.contiguous(), k), summed(dv.contiguous(), v)};
}

namespace {

/// The ends of segments as the host reads them, without an operation, because a graph's work may not read a
/// number on the host. Without offsets, each of `num_sequences` sequences is a segment.
std::vector<int64_t> ends_of_segments(const at::Tensor& offsets, int64_t num_sequences, int64_t seq_len) {
    std::vector<int64_t> ends;
    for (int64_t i = 0; !offsets.defined() && i <= num_sequences; ++i) ends.push_back(i * seq_len);
    if (!offsets.defined()) return ends;
    if (offsets.scalar_type() != at::kInt || !offsets.is_contiguous() || offsets.dim() != 1)
        throw RunError("offsets of segments are a vector of int32");
    const auto* offset = offsets.const_data_ptr<int32_t>();
    ends.assign(offset, offset + offsets.numel());
    if (ends.front() != 0 || ends.back() != num_sequences * seq_len)
        throw RunError("segments from {} to {} of {} tokens", ends.front(), ends.back(),
                       num_sequences * seq_len);
    for (size_t i = 1; i < ends.size(); ++i) {
        if (ends[i] < ends[i - 1] || ends[i] > ends[i - 1] + seq_len)
            throw RunError("a segment from {} to {}", ends[i - 1], ends[i]);
    }
    return ends;
}

/// Which keys are hidden from each query, over the tokens of all sequences: [queries, keys].
at::Tensor hidden_keys(const at::Tensor& q_bshd, const at::Tensor& k_bshd, const VisibleKeys& visible) {
    const auto q_ends = ends_of_segments(visible.query_offsets, q_bshd.size(0), q_bshd.size(1)),
               k_ends = ends_of_segments(visible.key_offsets, k_bshd.size(0), k_bshd.size(1));
    if (q_ends.size() != k_ends.size())
        throw RunError("{} segments of queries, {} of keys", q_ends.size(), k_ends.size());
    at::Tensor hidden = at::ones({q_ends.back(), k_ends.back()}, at::kBool);
    auto* row = hidden.mutable_data_ptr<bool>();
    for (size_t segment = 1; segment < q_ends.size(); ++segment) {
        const int64_t begin = k_ends[segment - 1], end = k_ends[segment];
        for (int64_t query = q_ends[segment - 1]; query < q_ends[segment]; ++query, row += k_ends.back()) {
            // The last query is at the place of the last key.
            const int64_t last = visible.causal ? end - (q_ends[segment] - query) : end - 1;
            const int64_t first = visible.window ? std::max(begin, last - *visible.window + 1) : begin;
            if (first <= last) std::fill(row + first, row + last + 1, false);
        }
    }
    return hidden;
}

/// [heads of q, tokens of all sequences, head_dim] in fp32.
at::Tensor by_head(const at::Tensor& x_bshd, const at::Tensor& q_bshd) {
    const at::Tensor x_htd = x_bshd.flatten(0, 1).transpose(0, 1).to(at::kFloat);
    return x_htd.repeat_interleave(q_bshd.size(2) / x_bshd.size(2), /*dim=*/0);
}
/// The inverse: sums over the heads that share one of x.
at::Tensor by_token(const at::Tensor& y_htd, const at::Tensor& x_bshd) {
    const at::Tensor sums = y_htd.view({x_bshd.size(2), -1, y_htd.size(1), y_htd.size(2)}).sum(1);
    return sums.transpose(0, 1).reshape(x_bshd.sizes()).to(x_bshd.scalar_type());
}

at::Tensor masked_scores(const at::Tensor& q, const at::Tensor& k, const VisibleKeys& visible) {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    return by_head(q, q)
        .matmul(by_head(k, q).transpose(1, 2))
        .mul_(scale)
        .masked_fill_(hidden_keys(q, k, visible), -std::numeric_limits<double>::infinity());
}

/// FlashAttention's log_sum_exp: [sequences, heads, tokens], or [heads, tokens] with segments.
at::Tensor log_sum_exp_of(const at::Tensor& x_ht, const at::Tensor& q_bshd, const VisibleKeys& visible) {
    if (visible.query_offsets.defined()) return x_ht;
    return x_ht.view({q_bshd.size(2), q_bshd.size(0), q_bshd.size(1)}).transpose(0, 1).contiguous();
}
at::Tensor by_head(const at::Tensor& log_sum_exp, const VisibleKeys& visible) {
    if (visible.query_offsets.defined()) return log_sum_exp;
    return log_sum_exp.transpose(0, 1).flatten(1, 2);
}

}  // namespace

// Plain attention in fp32 over all tokens at once. The number of its operations does not depend on the
// segments, as a graph requires.
Attention masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const VisibleKeys& visible) {
    if (const auto by_cudnn = cudnn_attention(q, k, v, visible)) return *by_cudnn;
    const double infinity = std::numeric_limits<double>::infinity();
    const at::Tensor scores = masked_scores(q, k, visible);
    at::Tensor sums = scores.logsumexp(-1);
    sums = sums.masked_fill(sums.eq(-infinity), infinity);  // without a key; the weights are then 0
    const at::Tensor y = scores.sub(sums.unsqueeze(-1)).exp_().matmul(by_head(v, q));
    return {by_token(y, q), log_sum_exp_of(sums, q, visible), {}, {}};
}

AttentionGradient masked_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const Attention& forward,
                                            const VisibleKeys& visible) {
    if (const auto by_cudnn = cudnn_attention_backward(dy, q, k, v, forward, visible)) return *by_cudnn;
    ARGOSY_CHECK(forward.log_sum_exp.is_contiguous(), "LibTorch reads log_sum_exp without strides");
    const at::Tensor wide_dy = by_head(dy, q);
    const at::Tensor weights =
        masked_scores(q, k, visible).sub_(by_head(forward.log_sum_exp, visible).unsqueeze(-1)).exp_();
    const at::Tensor projection = wide_dy.mul(by_head(forward.y, q)).sum(-1, /*keepdim=*/true);
    const at::Tensor dscores = wide_dy.matmul(by_head(v, q).transpose(1, 2))
                                   .sub_(projection)
                                   .mul_(weights)
                                   .mul_(1 / std::sqrt(static_cast<double>(q.size(3))));
    return {by_token(dscores.matmul(by_head(k, q)), q),
            by_token(dscores.transpose(1, 2).matmul(by_head(q, q)), k),
            by_token(weights.transpose(1, 2).matmul(wide_dy), v)};
}

// A replay runs the work on the host again and compares it with the recording: a real graph repeats the
// recorded arguments, and would not see a number that the host changes at each step. Nested objects are
// recorded again too, so each replay is a graph with its own number, launched once.
struct Graph::Recorded {
    explicit Recorded(std::function<void()> its_work) : work(std::move(its_work)) {}
    Recorded(const Recorded&) = delete;
    ~Recorded() { testing::destroy_graph(static_cast<int>(number)); }

    std::function<void()> work;
    std::vector<std::string> log;  // at the first time
    uint64_t number = 0;           // of the last time
};

Graph::Graph(const std::function<void()>& work, const Graph* /*shares_memory_of*/)
    : recorded_(std::make_unique<Recorded>(work)) {}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::replay() {
    struct Capture {
        Capture() {
            static int num_graphs = 0;
            testing::fake_gpus().captures = ++num_graphs;
        }
        ~Capture() { testing::fake_gpus().captures = 0; }
    };
    const Capture capture;
    testing::destroy_graph(static_cast<int>(recorded_->number));
    recorded_->number = static_cast<uint64_t>(testing::fake_gpus().captures);
    testing::keep_graph(testing::fake_gpus().captures);
    std::vector<std::string> log = testing::record_work(recorded_->work);
    require_recordable(log);
    if (recorded_->log.empty()) {
        recorded_->log = std::move(log);
    } else {
        require_same(recorded_->log, log);
    }
}

uint64_t Graph::number() const { return recorded_->number; }

}  // namespace argosy::gpu
