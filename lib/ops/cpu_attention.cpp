#include "ops/cpu_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <numeric>

#include "ops/kernel_calls.h"

namespace argosy::ops {
namespace {

using kernels::kAttentionBlock;
using kernels::TokenRange;

int64_t num_blocks(int64_t num_tokens) { return (num_tokens + kAttentionBlock - 1) / kAttentionBlock; }

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
    int64_t sum() const { return std::accumulate(of_queries.begin(), of_queries.end(), int64_t{0}); }
};

/// Hands out blocks in order, so that each thread gets about the same work.
class Division {
  public:
    Division(double total_work, int num_threads)
        : parts_(num_threads), work_of_thread_(std::max(total_work, 1.0) / num_threads) {}

    /// Adds a block, or all blocks of a group.
    void add(int64_t group, AttentionPart::Of of, TokenRange range, double work) {
        const auto place = static_cast<int64_t>((done_ + work / 2) / work_of_thread_);
        auto& parts = parts_[std::clamp<int64_t>(place, 0, std::ssize(parts_) - 1)];
        done_ += work;
        if (!parts.empty() && parts.back().group == group && parts.back().of == of) {
            parts.back().range.end = range.end;
        } else {
            parts.push_back({group, of, range});
        }
    }

    /// Adds the blocks of a group's tokens one by one.
    void add_blocks(int64_t group, AttentionPart::Of of, int64_t num_tokens,
                    const std::vector<int64_t>& visible, double work_of_block) {
        for (int64_t block = 0; block < std::ssize(visible); ++block) {
            const int64_t begin = block * kAttentionBlock;
            // A block without visible keys has results, too.
            add(group, of, {begin, std::min(begin + kAttentionBlock, num_tokens)},
                work_of_block * static_cast<double>(visible[block]) + 1e-3);
        }
    }

    AttentionParts take() { return std::move(parts_); }

  private:
    AttentionParts parts_;
    double work_of_thread_, done_ = 0;
};

std::vector<VisibleBlocks> visible_blocks(const std::vector<kernels::AttentionShape>& shapes) {
    std::vector<VisibleBlocks> visible;
    for (const auto& shape : shapes) {
        const bool same = !visible.empty() && shape.positions == nullptr;  // as the sequence before
        visible.push_back(same ? visible.back() : VisibleBlocks(shape));
    }
    return visible;
}

double work_of(const std::vector<VisibleBlocks>& visible, int64_t num_kv_heads) {
    int64_t blocks = 0;
    for (const VisibleBlocks& each : visible) blocks += each.sum();
    return static_cast<double>(blocks * num_kv_heads);
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
    for (int64_t i = 0; i < shape.num_sequences; ++i)
        shapes[i].positions = positions.const_data_ptr<int64_t>() + i * shape.q_len;
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

template <class T>
void run_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionOutput& output, const std::vector<kernels::AttentionShape>& shapes,
                  int64_t num_kv_heads, const AttentionGradient& gradient) {
    using Of = AttentionPart::Of;
    run_parts(q, divide_attention_backward(shapes, num_kv_heads, threads_of_parts()), shapes, num_kv_heads,
              [&](const AttentionPart& part, const Place& at, const kernels::AttentionShape& shape) {
                  const TokenRange queries{0, shape.num_queries}, keys{0, shape.num_keys};
                  kernels::AttentionBackward<T> args{
                      .shape = shape,
                      .queries = part.of == Of::Queries ? part.range : queries,
                      .keys = part.of == Of::Keys ? part.range : keys,
                      .dy = at.queries<T>(dy),
                      .q = at.queries<T>(q),
                      .k = at.keys<T>(k),
                      .v = at.keys<T>(v),
                      .y = at.queries<T>(output.y),
                      .log_sum_exp = elements<float>(output.log_sum_exp) + at.log_sum_exp};
                  if (part.of != Of::Keys) args.dq = at.mutable_queries<T>(gradient.dq);
                  if (part.of != Of::Queries) {
                      args.dk = at.mutable_keys<T>(gradient.dk);
                      args.dv = at.mutable_keys<T>(gradient.dv);
                  }
                  kernels::table().of<T>().attention_backward(args);
              });
}

}  // namespace

AttentionParts divide_attention(const std::vector<kernels::AttentionShape>& shapes, int64_t num_kv_heads,
                                int num_threads) {
    const std::vector<VisibleBlocks> visible = visible_blocks(shapes);
    Division division(work_of(visible, num_kv_heads), num_threads);
    for (int64_t group = 0; group < std::ssize(shapes) * num_kv_heads; ++group) {
        const int64_t sequence = group / num_kv_heads;
        division.add_blocks(group, AttentionPart::Of::All, shapes[sequence].num_queries,
                            visible[sequence].of_queries, 1);
    }
    return division.take();
}

AttentionParts divide_attention_backward(const std::vector<kernels::AttentionShape>& shapes,
                                         int64_t num_kv_heads, int num_threads) {
    using Of = AttentionPart::Of;
    // Products for each block of scores: of all gradients, of dq, and of dk and dv.
    constexpr double kAll = 5, kQueries = 3, kKeys = 4;
    const std::vector<VisibleBlocks> visible = visible_blocks(shapes);
    const double work = work_of(visible, num_kv_heads);
    const int64_t num_groups = std::ssize(shapes) * num_kv_heads;
    const double groups_of_thread = static_cast<double>((num_groups + num_threads - 1) / num_threads);
    const bool cuts =
        (kQueries + kKeys) * static_cast<double>(num_groups) / num_threads < kAll * groups_of_thread;
    Division division(work * (cuts ? kQueries + kKeys : kAll), num_threads);
    for (int64_t group = 0; group < num_groups; ++group) {
        const int64_t sequence = group / num_kv_heads;
        const kernels::AttentionShape& shape = shapes[sequence];
        if (cuts) {
            division.add_blocks(group, Of::Queries, shape.num_queries, visible[sequence].of_queries,
                                kQueries);
            division.add_blocks(group, Of::Keys, shape.num_keys, visible[sequence].of_keys, kKeys);
        } else {
            division.add(group, Of::All, {0, shape.num_queries},
                         kAll * static_cast<double>(visible[sequence].sum()));
        }
    }
    return division.take();
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
