// Attention on tensors without data that count as a GPU's: it allocates what attention on a GPU does.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include "ops/attention.h"
#include "ops/documents.h"
#include "ops/planned_gpu.h"

namespace argosy::ops {
namespace {

/// Counts the bytes of the tensors of a device.
class CountingAllocator final : public c10::Allocator {
  public:
    explicit CountingAllocator(c10::DeviceType device) : device_(device) {
        c10::SetAllocator(device, this, std::numeric_limits<uint8_t>::max());
    }
    c10::DataPtr allocate(size_t num_bytes) override {
        current_ += static_cast<int64_t>(num_bytes);
        peak_ = std::max(peak_, current_);
        void* data = device_ == c10::kCPU ? std::aligned_alloc(64, (num_bytes + 64) / 64 * 64) : nullptr;
        return {data, new Block{*this, num_bytes, data}, &free, device_};
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, size_t count) const override {
        default_copy_data(to, from, count);
    }
    /// The peak of what `run` allocates.
    template <class Run>
    int64_t peak_of(const Run& run) {
        const int64_t before = peak_ = current_;
        run();
        return peak_ - before;
    }

  private:
    struct Block {
        CountingAllocator& allocator;
        size_t num_bytes;
        void* data;
    };
    static void free(void* context) {
        auto* const block = static_cast<Block*>(context);
        block->allocator.current_ -= static_cast<int64_t>(block->num_bytes);
        std::free(block->data);
        delete block;
    }

    c10::DeviceType device_;
    int64_t current_ = 0, peak_ = 0;
};

CountingAllocator& bytes_of(c10::DeviceType device) {
    static auto *const on_cpu = new CountingAllocator(c10::kCPU), *const on_meta =
                                                                      new CountingAllocator(c10::kMeta);
    return device == c10::kCPU ? *on_cpu : *on_meta;
}

constexpr int64_t kHeads = 4, kKeyHeads = 2, kWidth = 8, kSequences = 2, kTokens = 192;

struct Case {
    std::string name;
    AttentionShape shape;
    bool positions = false;
};

AttentionShape shape(int64_t q_len, int64_t k_len, int64_t q_offset, int64_t window = kNoWindow) {
    return {kSequences, q_len, k_len, kWidth, q_offset, window, {}};
}

std::vector<Case> cases() {
    return {{"whole", shape(kTokens, kTokens, 0)},
            {"window", shape(kTokens, kTokens, 0, 20)},
            {"documents", shape(kTokens, kTokens, 0), true},
            {"up_to_the_last_query", shape(kTokens / 4, kTokens, kTokens * 3 / 4), true},
            {"before_the_queries", shape(kTokens / 2, kTokens / 2, kTokens / 2), true}};
}

/// One call of attention and its backward pass.
struct Call {
    Call(const Case& of, at::ScalarType type, c10::DeviceType device)
        : shape(of.shape), options(at::TensorOptions(device).dtype(type)) {
        q = at::ones({kSequences * shape.q_len, kHeads * kWidth}, options);
        k = at::ones({kSequences * shape.k_len, kKeyHeads * kWidth}, options);
        if (!of.positions) return;
        positions = at::zeros({kSequences * shape.q_len}, options.dtype(at::kLong));
        shape.document_offsets = document_offsets(positions, 2 * kSequences);
    }

    AttentionShape shape;
    at::TensorOptions options;
    at::Tensor q, k, positions;
};

class PlannedAttention : public ::testing::TestWithParam<Case> {};

TEST_P(PlannedAttention, HoldsScoresWhereGpusDo) {
    const c10::InferenceMode guard;
    CountingAllocator &real = bytes_of(c10::kCPU), &dry = bytes_of(c10::kMeta);
    const PlannedGpu gpu(90);
    const Call planned(GetParam(), at::kFloat, c10::kMeta), computed(GetParam(), at::kFloat, c10::kCPU);
    AttentionOutput planned_output, output;
    const auto expect_same = [](int64_t found, int64_t expected) {
        EXPECT_NEAR(static_cast<double>(found) / static_cast<double>(expected), 1, 0.02);
    };
    const auto& [q, k] = std::tie(planned.q, planned.k);
    expect_same(dry.peak_of([&] { planned_output = attention(q, k, k, planned.shape, planned.positions); }),
                real.peak_of([&] {
                    output = composed_attention(computed.q, computed.k, computed.k, computed.shape,
                                                computed.positions);
                }));
    expect_same(dry.peak_of([&] {
        attention_backward(q, q, k, k, planned_output, planned.shape, planned.positions);
    }),
                real.peak_of([&] {
                    composed_attention_backward(computed.q, computed.q, computed.k, computed.k, output,
                                                computed.shape, computed.positions);
                }));
}

TEST_P(PlannedAttention, HoldsNoScoresWhereKernelsComputeIt) {
    const c10::InferenceMode guard;
    CountingAllocator& dry = bytes_of(c10::kMeta);
    const PlannedGpu gpu(90);
    const Call call(GetParam(), at::kBFloat16, c10::kMeta);
    AttentionOutput output;
    const int64_t offsets = GetParam().positions ? 16 * call.positions.nbytes() : 0;
    const auto expect_results = [&](int64_t found, int64_t results) {
        EXPECT_GE(found, results);
        EXPECT_LE(found, results + offsets);
    };
    expect_results(
        dry.peak_of([&] { output = attention(call.q, call.k, call.k, call.shape, call.positions); }),
        call.q.nbytes() + kSequences * kHeads * call.shape.q_len * sizeof(float));
    expect_results(dry.peak_of([&] {
        attention_backward(call.q, call.q, call.k, call.k, output, call.shape, call.positions);
    }),
                   call.q.nbytes() + 2 * call.k.nbytes());
}

INSTANTIATE_TEST_SUITE_P(Paths, PlannedAttention, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace argosy::ops
