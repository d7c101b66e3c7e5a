#include "gpu/with_cuda/cudnn_frontend.h"

#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // for graphs in files
#include <cudnn_frontend.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cuda/device.h"

namespace argosy::gpu {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

namespace {

/// The arguments of a graph by the names that cuDNN knows; those of offsets follow those of the rows.
enum Name : int64_t {
    kQ = 1,
    kK,
    kV,
    kY,
    kLogSumExp,
    kDy,
    kDq,
    kDk,
    kDv,
    kQueryLengths,
    kKeyLengths,
    kOffsets = 100
};

/// Describes the arguments of a graph.
class Arguments {
  public:
    Arguments(Graph& graph, const CudnnGraph& shape) : graph_(graph), shape_(shape) {}

    Tensor lengths(Name name) {
        return graph_.tensor(attributes(name, fe::DataType_t::INT32)
                                 .set_dim({shape_.num_segments, 1, 1, 1})
                                 .set_stride({1, 1, 1, 1}));
    }
    Tensor queries(Name name, int64_t stride) {
        return graph_.tensor(rows(name, shape_.max_queries, shape_.heads, stride));
    }
    Tensor keys(Name name, int64_t stride) {
        return graph_.tensor(rows(name, shape_.max_keys, shape_.kv_heads, stride));
    }
    Tensor log_sum_exp() { return graph_.tensor(log_sum_exp_attributes()); }

    // Results, whose attributes cuDNN's operation has made.
    void results_of_queries(Name name, const Tensor& made) {
        *made = rows(name, shape_.max_queries, shape_.heads, shape_.heads * shape_.head_dim).set_output(true);
    }
    void results_of_keys(Name name, const Tensor& made) {
        *made =
            rows(name, shape_.max_keys, shape_.kv_heads, shape_.kv_heads * shape_.head_dim).set_output(true);
    }
    void result_log_sum_exp(const Tensor& made) { *made = log_sum_exp_attributes().set_output(true); }

  private:
    static Tensor_attributes attributes(int64_t name, fe::DataType_t type) {
        return Tensor_attributes().set_uid(name).set_name("t" + std::to_string(name)).set_data_type(type);
    }
    Tensor offsets(Name name) {
        return graph_.tensor(attributes(kOffsets + name, fe::DataType_t::INT64)
                                 .set_dim({shape_.num_segments + 1, 1, 1, 1})
                                 .set_stride({1, 1, 1, 1}));
    }
    Tensor_attributes rows(Name name, int64_t num_tokens, int64_t heads, int64_t stride) {
        return attributes(name, fe::DataType_t::BFLOAT16)
            .set_dim({shape_.num_segments, heads, num_tokens, shape_.head_dim})
            .set_stride({num_tokens * stride, shape_.head_dim, stride, 1})
            .set_ragged_offset(offsets(name));
    }
    Tensor_attributes log_sum_exp_attributes() {
        return attributes(kLogSumExp, fe::DataType_t::FLOAT)
            .set_dim({shape_.num_segments, shape_.heads, shape_.max_queries, 1})
            .set_stride({shape_.max_queries * shape_.heads, 1, shape_.heads, 1})
            .set_ragged_offset(offsets(kLogSumExp));
    }

    Graph& graph_;
    const CudnnGraph& shape_;
};

/// Options that forward and backward have in common.
template <class Options>
Options options(const CudnnGraph& shape, Arguments& arguments) {
    Options made;
    made.set_name("attention")
        .set_attn_scale(static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim))))
        .set_padding_mask(true)
        .set_seq_len_q(arguments.lengths(kQueryLengths))
        .set_seq_len_kv(arguments.lengths(kKeyLengths))
        .set_max_total_seq_len_q(shape.num_queries)
        .set_max_total_seq_len_kv(shape.num_keys);
    if (!shape.is_causal) return made;
    made.set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT).set_diagonal_band_right_bound(0);
    if (shape.window) made.set_diagonal_band_left_bound(static_cast<int>(*shape.window));
    return made;
}

void describe_forward(Graph& graph, const CudnnGraph& shape) {
    Arguments arguments(graph, shape);
    auto forward = options<fe::graph::SDPA_attributes>(shape, arguments);
    forward.set_generate_stats(true);
    const auto [y, log_sum_exp] =
        graph.sdpa(arguments.queries(kQ, shape.q_stride), arguments.keys(kK, shape.k_stride),
                   arguments.keys(kV, shape.v_stride), forward);
    arguments.results_of_queries(kY, y);
    arguments.result_log_sum_exp(log_sum_exp);
}

void describe_backward(Graph& graph, const CudnnGraph& shape) {
    Arguments arguments(graph, shape);
    auto backward = options<fe::graph::SDPA_backward_attributes>(shape, arguments);
    backward.set_deterministic_algorithm(shape.is_deterministic);
    const auto [dq, dk, dv] =
        graph.sdpa_backward(arguments.queries(kQ, shape.q_stride), arguments.keys(kK, shape.k_stride),
                            arguments.keys(kV, shape.v_stride), arguments.queries(kY, shape.y_stride),
                            arguments.queries(kDy, shape.dy_stride), arguments.log_sum_exp(), backward);
    arguments.results_of_queries(kDq, dq);
    arguments.results_of_keys(kDk, dk);
    arguments.results_of_keys(kDv, dv);
}

}  // namespace

std::shared_ptr<Graph> describe(const CudnnGraph& shape, int capability) {
    const auto graph = std::make_shared<Graph>();
    graph->set_sm_version(capability)
        .set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    shape.is_backward ? describe_backward(*graph, shape) : describe_forward(*graph, shape);
    return graph;
}

namespace {

/// Why cuDNN has no kernel for the graph that is worth it; empty: it may have one.
std::string obstacle(const CudnnGraph& shape, int capability) {
    const bool is_hopper = capability / 10 == 9, is_blackwell = capability / 10 == 10;
    if (!is_hopper && !is_blackwell) return "GPUs of this kind have no statistics of segments";
    if (shape.is_deterministic && is_hopper)
        return "deterministic sums need memory for all scores on this GPU";
    return "";
}

/// While it lives, this thread may load code also where it records a CUDA graph.
class MayLoadCode {
  public:
    MayLoadCode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~MayLoadCode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    MayLoadCode(const MayLoadCode&) = delete;
    MayLoadCode& operator=(const MayLoadCode&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

std::string build(Graph& graph) {
    const MayLoadCode guard;
    auto result = graph.build(at::native::getCudnnHandle(), {fe::HeurMode_t::A});
    return result.is_good() ? "" : result.get_message();
}

/// The graph, ready to run on this thread's GPU; null if cuDNN has none. Each is built once in a process and
/// never freed, since CUDA may end before this program's statics do.
Graph* find(const CudnnGraph& shape) {
    static auto& mutex = *new std::mutex;
    static auto& graphs = *new std::map<std::pair<int, CudnnGraph>, std::shared_ptr<Graph>>;
    const int device = cuda::current_device();
    const std::lock_guard lock(mutex);
    if (const auto known = graphs.find({device, shape}); known != graphs.end()) return known->second.get();
    const int capability = cuda::describe_device(device).capability;
    std::string reason = obstacle(shape, capability);
    std::shared_ptr<Graph> made;
    if (reason.empty()) {
        made = describe(shape, capability);
        reason = build(*made);
    }
    if (!reason.empty()) {
        made = nullptr;
        spdlog::info(
            "attention by FlashAttention instead of cuDNN, {} of {} heads of {}, at most {} keys{}{}: {}",
            shape.is_backward ? "backward" : "forward", shape.heads, shape.head_dim, shape.max_keys,
            shape.is_causal ? ", causal" : "", shape.window ? ", in a window" : "", reason);
    }
    return (graphs[{device, shape}] = std::move(made)).get();
}

}  // namespace

bool cudnn_has(const CudnnGraph& graph) { return find(graph) != nullptr; }

void run_cudnn(const CudnnCall& call) {
    Graph* const graph = find(call.graph);
    ARGOSY_CHECK(graph != nullptr, "cuDNN has no kernel for this attention");
    std::unordered_map<int64_t, void*> memory = {{kQueryLengths, call.query_lengths.data_ptr()},
                                                 {kKeyLengths, call.key_lengths.data_ptr()}};
    const auto add = [&](Name name, const CudnnRows& argument) {
        memory[name] = argument.rows.data_ptr();
        memory[kOffsets + name] = argument.offsets.data_ptr();
    };
    add(kQ, call.q);
    add(kK, call.k);
    add(kV, call.v);
    add(kY, call.y);
    add(kLogSumExp, call.log_sum_exp);
    if (call.graph.is_backward) {
        add(kDy, call.dy);
        add(kDq, call.dq);
        add(kDk, call.dk);
        add(kDv, call.dv);
    }
    const at::Tensor workspace =
        at::empty({graph->get_workspace_size()}, call.q.rows.options().dtype(at::kByte));
    auto result = graph->execute(at::native::getCudnnHandle(), memory, workspace.data_ptr());
    if (result.is_bad()) throw RunError("attention by cuDNN: {}", result.get_message());
}

}  // namespace argosy::gpu
