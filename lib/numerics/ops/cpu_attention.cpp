#include "ops/cpu_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "ops/kernel_calls.h"

namespace argosy::ops {
namespace {

using kernels::kAttentionBlock;
using kernels::TokenRange;

int64_t num_blocks(int64_t num_tokens) { return divide_up(num_tokens, kAttentionBlock); }

/// Blocks of scores that are not hidden: for each block of queries those with keys, and for each block of
/// keys those with queries.
struct VisibleBlocks {
    std::vector<int64_t> of_queries, of_keys;

    explicit VisibleBlocks(const kernels::AttentionShape& shape)
        : of_queries(num_blocks(shape.num_queries)), of_keys(num_blocks(shape.num_keys) + 1) {
        for (int64_t block = 0; block < std::ssize(of_queries); ++block) {
            const TokenRange keys = shape.visible_keys(block * kAttentionBlock, kAttentionBlock);
            if (keys.empty()) continue;
            const int64_t begin = keys.begin / kAttentionBlock, end = num_blocks(keys.end);
            of_queries[block] = end - begin;
            of_keys[begin] += 1;
            of_keys[end] -= 1;
        }
        std::partial_sum(of_keys.begin(), of_keys.end(), of_keys.begin());
        of_keys.pop_back();
    }
};

using Blocks = std::vector<int64_t> VisibleBlocks::*;
using Tokens = int64_t kernels::AttentionShape::*;

/// The work of each block of queries or of keys. A block that sees nothing has results, too.
std::vector<double> work_of_blocks(const kernels::AttentionShape& shape, Blocks blocks) {
    const VisibleBlocks visible(shape);
    std::vector<double> work;
    for (const int64_t each : visible.*blocks) work.push_back(static_cast<double>(each) + 1e-3);
    return work;
}

/// Hands out the blocks of all groups in order, so that each thread gets about the same work.
AttentionParts divide(const std::vector<kernels::AttentionShape>& shapes, int64_t num_kv_heads,
                      int num_threads, Blocks blocks, Tokens num_tokens) {
    const int64_t num_groups = std::ssize(shapes) * num_kv_heads;
    AttentionParts parts(num_threads);
    if (num_threads == 1) {
        for (int64_t group = 0; group < num_groups; ++group)
            parts[0].push_back({group, {0, shapes[0].*num_tokens}});
        return parts;
    }
    std::vector<std::vector<double>> work;  // of each sequence
    double total = 0;
    for (const auto& shape : shapes) {
        const bool same = !work.empty() && shape.positions == nullptr;  // as the sequence before
        work.push_back(same ? work.back() : work_of_blocks(shape, blocks));
        total += std::reduce(work.back().begin(), work.back().end()) * static_cast<double>(num_kv_heads);
    }
    double done = 0;
    for (int64_t group = 0; group < num_groups; ++group) {
        const int64_t sequence = group / num_kv_heads;
        for (int64_t begin = 0; const double each : work[sequence]) {
            const auto place = static_cast<int64_t>((done + each / 2) / total * num_threads);
            auto& own = parts[std::clamp<int64_t>(place, 0, num_threads - 1)];
            if (own.empty() || own.back().group != group) own.push_back({group, {begin, begin}});
            own.back().range.end = begin = std::min(begin + kAttentionBlock, shapes[sequence].*num_tokens);
            done += each;
        }
    }
    return parts;
}

std::vector<kernels::AttentionShape> shapes_of(const at::Tensor& q, const at::Tensor& k,
                                               const AttentionShape& shape, const at::Tensor& positions) {
    std::vector<kernels::AttentionShape> shapes(shape.num_sequences,
                                                {.num_queries = shape.q_len,
                                                 .num_keys = shape.k_len,
                                                 .head_dim = shape.head_dim,
                                                 .num_heads = q.size(1) / k.size(1),
                                                 .scale = static_cast<float>(shape.scale()),
                                                 .query_offset = shape.q_offset,
                                                 .window = shape.window});
    if (!positions.defined() || positions.is_meta()) return shapes;
    for (int64_t i = 0; i < shape.num_sequences; ++i) {
        shapes[i].positions = positions.const_data_ptr<int64_t>() + i * shape.q_len;
        for (int64_t query = 1; query < shape.q_len; ++query) {  // or the kernels would leave out masks
            ARGOSY_CHECK(shapes[i].first_key(query - 1) <= shapes[i].first_key(query),
                         "the documents of sequence {} overlap at token {}", i, query);
        }
    }
    return shapes;
}

/// The first elements of a group in the tensors.
struct Place {
    Place(int64_t group, const kernels::AttentionShape& shape, int64_t num_kv_heads)
        : sequence(group / num_kv_heads),
          query(sequence * shape.num_queries),
          key(sequence * shape.num_keys),
          query_column(group % num_kv_heads * shape.num_heads * shape.head_dim),
          key_column(group % num_kv_heads * shape.head_dim),
          log_sum_exp(group * shape.num_heads * shape.num_queries) {}

    int64_t sequence, query, key, query_column, key_column, log_sum_exp;

    template <class T>
    kernels::TokenRows<const T> queries(const at::Tensor& x) const {
        return {static_cast<const T*>(x.const_data_ptr()) + query * x.stride(0) + query_column, x.stride(0)};
    }
    template <class T>
    kernels::TokenRows<const T> keys(const at::Tensor& x) const {
        return {static_cast<const T*>(x.const_data_ptr()) + key * x.stride(0) + key_column, x.stride(0)};
    }
    template <class T>
    kernels::TokenRows<T> mutable_queries(const at::Tensor& x) const {
        return {static_cast<T*>(x.mutable_data_ptr()) + query * x.stride(0) + query_column, x.stride(0)};
    }
    template <class T>
    kernels::TokenRows<T> mutable_keys(const at::Tensor& x) const {
        return {static_cast<T*>(x.mutable_data_ptr()) + key * x.stride(0) + key_column, x.stride(0)};
    }
};

/// Calls run(part, place, shape) for all parts, each thread's on one thread.
template <class Run>
void run_parts(const at::Tensor& x, const AttentionParts& parts,
               const std::vector<kernels::AttentionShape>& shapes, int64_t num_kv_heads, const Run& run) {
    run_on_parts(x, std::ssize(parts), /*min_per_thread=*/1, [&](int64_t begin, int64_t end) {
        for (int64_t thread = begin; thread < end; ++thread) {
            for (const AttentionPart& part : parts[thread]) {
                const Place place(part.group, shapes[0], num_kv_heads);
                run(part, place, shapes[place.sequence]);
            }
        }
    });
}

template <class T>
void run_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const std::vector<kernels::AttentionShape>& shapes, int64_t num_kv_heads,
                 const AttentionOutput& output) {
    const bool is_wide = output.y.scalar_type() != q.scalar_type();
    run_parts(q, divide_attention(shapes, num_kv_heads, threads_of_parts()), shapes, num_kv_heads,
              [&](const AttentionPart& part, const Place& at, const kernels::AttentionShape& shape) {
                  kernels::Attention<T> args{
                      .shape = shape,
                      .queries = part.range,
                      .q = at.queries<T>(q),
                      .k = at.keys<T>(k),
                      .v = at.keys<T>(v),
                      .y = {},
                      .log_sum_exp = mutable_elements<float>(output.log_sum_exp) + at.log_sum_exp};
                  if (is_wide) {
                      args.wide_y = at.mutable_queries<float>(output.y);
                  } else {
                      args.y = at.mutable_queries<T>(output.y);
                  }
                  kernels::table().of<T>().attention(args);
              });
}

/// The sums of dq of the groups of which several threads have parts.
class SharedGroups {
  public:
    SharedGroups(const at::Tensor& x, const AttentionParts& parts, const kernels::AttentionShape& shape)
        : num_blocks_(shape.num_heads * shape.num_query_blocks()), size_(num_blocks_ * shape.size_of_sums()) {
        for (const auto& own : parts) {
            for (const auto& [group, range] : own) {
                const bool has_all_keys = range.begin == 0 && range.end == shape.num_keys;
                if (!has_all_keys) places_.try_emplace(group, std::ssize(places_));
            }
        }
        const auto num_groups = std::ssize(places_);
        if (num_groups > 0) dq_ = at::empty({num_groups * size_}, x.options().dtype(at::kFloat));
        keys_added_.resize(num_groups * num_blocks_);
    }

    kernels::SharedSums sums(int64_t group) {
        const auto found = places_.find(group);
        if (found == places_.end()) return {};
        return {mutable_elements<float>(dq_) + found->second * size_,
                keys_added_.data() + found->second * num_blocks_};
    }

    /// Lets all parts go on, after one failed.
    void end_waits() {
        for (int64_t& count : keys_added_) std::atomic_ref(count).fetch_or(kernels::kNoWait);
    }

  private:
    int64_t num_blocks_, size_;
    std::map<int64_t, int64_t> places_;  // of groups in the sums
    at::Tensor dq_;
    std::vector<int64_t> keys_added_;
};

template <class T>
void run_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionOutput& output, const std::vector<kernels::AttentionShape>& shapes,
                  int64_t num_kv_heads, const AttentionGradient& gradient) {
    const AttentionParts parts = divide_attention_backward(shapes, num_kv_heads, threads_of_parts());
    SharedGroups shared(q, parts, shapes[0]);
    run_parts(q, parts, shapes, num_kv_heads,
              [&](const AttentionPart& part, const Place& at, const kernels::AttentionShape& shape) {
                  const kernels::AttentionBackward<T> args{
                      .shape = shape,
                      .keys = part.range,
                      .dy = at.queries<T>(dy),
                      .q = at.queries<T>(q),
                      .k = at.keys<T>(k),
                      .v = at.keys<T>(v),
                      .y = at.queries<T>(output.y),
                      .log_sum_exp = elements<float>(output.log_sum_exp) + at.log_sum_exp,
                      .dq = at.mutable_queries<T>(gradient.dq),
                      .dk = at.mutable_keys<T>(gradient.dk),
                      .dv = at.mutable_keys<T>(gradient.dv),
                      .sums = shared.sums(part.group)};
                  try {
                      kernels::table().of<T>().attention_backward(args);
                  } catch (...) {
                      shared.end_waits();
                      throw;
                  }
              });
}

}  // namespace

AttentionParts divide_attention(const std::vector<kernels::AttentionShape>& shapes, int64_t num_kv_heads,
                                int num_threads) {
    return divide(shapes, num_kv_heads, num_threads, &VisibleBlocks::of_queries,
                  &kernels::AttentionShape::num_queries);
}

AttentionParts divide_attention_backward(const std::vector<kernels::AttentionShape>& shapes,
                                         int64_t num_kv_heads, int num_threads) {
    AttentionParts parts = divide(shapes, num_kv_heads, num_threads, &VisibleBlocks::of_keys,
                                  &kernels::AttentionShape::num_keys);
    std::ranges::reverse(parts);
    return parts;
}

AttentionOutput cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& positions,
                              at::ScalarType y_type) {
    const AttentionOutput output{at::empty(q.sizes(), q.options().dtype(y_type)),
                                 at::empty({shape.num_sequences, q.size(1) / shape.head_dim, shape.q_len},
                                           q.options().dtype(at::kFloat))};
    const at::Tensor dense_positions = positions.defined() ? positions.contiguous() : at::Tensor();
    with_element_type(q.scalar_type(), [&]<class T>(T) {
        run_forward<T>(with_dense_rows(q), with_dense_rows(k), with_dense_rows(v),
                       shapes_of(q, k, shape, dense_positions), k.size(1) / shape.head_dim, output);
    });
    return output;
}

AttentionGradient cpu_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionOutput& output,
                                         const AttentionShape& shape, const at::Tensor& positions) {
    if (q.numel() == 0 || k.numel() == 0) return {at::zeros_like(q), at::zeros_like(k), at::zeros_like(v)};
    const AttentionGradient gradient{at::empty_like(q, at::MemoryFormat::Contiguous),
                                     at::empty_like(k, at::MemoryFormat::Contiguous),
                                     at::empty_like(v, at::MemoryFormat::Contiguous)};
    const at::Tensor dense_positions = positions.defined() ? positions.contiguous() : at::Tensor();
    with_element_type(q.scalar_type(), [&]<class T>(T) {
        run_backward<T>(with_dense_rows(dy), with_dense_rows(q), with_dense_rows(k), with_dense_rows(v),
                        {with_dense_rows(output.y), output.log_sum_exp.contiguous()},
                        shapes_of(q, k, shape, dense_positions), k.size(1) / shape.head_dim, gradient);
    });
    return gradient;
}

}  // namespace argosy::ops
