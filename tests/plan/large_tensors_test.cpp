// The tensors that the report names by their size, against the sizes that a run requests from its allocator.
#include "plan/large_tensors.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "ops/ops_context.h"
#include "plan/layouts.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::plan {
namespace {

using testing::Layout;

/// Records the requested sizes.
class NotingAllocator final : public c10::Allocator {
  public:
    explicit NotingAllocator(c10::Allocator& inner) : inner_(inner) {}
    c10::DataPtr allocate(size_t num_bytes) override {
        sizes.insert(static_cast<int64_t>(num_bytes));
        return inner_.allocate(num_bytes);
    }
    c10::DeleterFnPtr raw_deleter() const override { return inner_.raw_deleter(); }
    void copy_data(void* out, const void* in, size_t num_bytes) const override {
        inner_.copy_data(out, in, num_bytes);
    }

    std::set<int64_t> sizes;

  private:
    c10::Allocator& inner_;
};

NotingAllocator& allocator() {
    static auto& installed = *new NotingAllocator(*c10::GetCPUAllocator());
    c10::SetCPUAllocator(&installed, std::numeric_limits<uint8_t>::max());
    return installed;
}

void expect_requests(const model::ModelSpec& spec, const Layout& layout, const parallel::Precision& precision,
                     const parallel::ProductCasts& casts = {}) {
    allocator().sizes.clear();
    testing::TinyRun run(
        {.layout = layout, .precision = precision, .microbatch_size = 2, .spec = spec, .casts = casts},
        testing::world());
    run.train(0);
    const train::TrainerOptions options{.spec = spec,
                                        .model = {.precision = precision,
                                                  .casts = casts,
                                                  .seq_len = testing::TinyRun::kSeqLen,
                                                  .microbatch_size = 2},
                                        .stage_layers = layout.stage_layers};
    const auto listed = large_tensors(options, run.mesh());
    EXPECT_GT(listed.size(), 10u);
    for (const LargeTensor& tensor : listed) {
        EXPECT_TRUE(allocator().sizes.contains(tensor.num_bytes()))
            << names_of_size({&tensor, 1}, tensor.num_bytes());
    }
    EXPECT_NE(names_of_size(listed, *allocator().sizes.rbegin()), "") << "the largest has a name";
}

TEST(LargeTensors, AreRequestedByARun) {
    const ops::OpsContext tensors;
    for (const Layout& layout : layouts()) {
        for (const char* family : {"llama3", "qwen2", "qwen3"}) {
            for (const bool bf16_gradients : {false, true}) {
                SCOPED_TRACE(layout.name + " " + family + (bf16_gradients ? ", gradients in bf16" : ""));
                expect_requests(testing::tiny_spec(family), layout,
                                {at::kFloat, at::kBFloat16, at::kFloat, bf16_gradients});
            }
        }
    }
}

TEST(LargeTensors, OfWeightsInFloat8AreRequestedByARun) {
    const ops::OpsContext tensors;
    model::ModelSpec spec = testing::tiny_spec("llama3");
    spec.dim = 128;
    spec.hidden_dim = 192;
    spec.vocab_size = 384;
    spec.num_heads = 4;
    spec.num_kv_heads = 2;
    spec.head_dim = 32;
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name);
        expect_requests(spec, layout, {at::kFloat, at::kBFloat16, at::kFloat},
                        {.recipe = ops::find_recipe("tensorwise"), .gather = true});
    }
}

TEST(LargeTensors, HaveTheNamesOfTheirSize) {
    comm::Mesh mesh(layout::resolve({.shard = 1}, 1), testing::self());
    const int64_t tokens = 16384, hidden = 18944, dim = 3584, vocab = 152064;
    const train::TrainerOptions options{
        .spec = {.name = "llama3",
                 .vocab_size = vocab,
                 .dim = dim,
                 .num_layers = 2,
                 .num_heads = 28,
                 .num_kv_heads = 4,
                 .head_dim = 128,
                 .hidden_dim = hidden},
        .model = {
            .precision = {at::kFloat, at::kBFloat16, at::kFloat}, .seq_len = 1024, .microbatch_size = 16}};
    const auto listed = large_tensors(options, mesh);
    const auto named = [&](int64_t bytes) { return names_of_size(listed, bytes); };
    EXPECT_EQ(named(tokens * hidden * 2), "a layer's activation [16384, 18944] of bfloat16");
    EXPECT_EQ(named(tokens * 2 * hidden * 2), "a layer's gate and up [16384, 37888] of bfloat16");
    EXPECT_EQ(named(tokens * (dim + 1024) * 2), "a layer's q, k and v [16384, 4608] of bfloat16");
    EXPECT_EQ(named(tokens * dim * 2),
              "the residual stream or a layer's attention output or gradient of q [16384, 3584] of bfloat16");
    EXPECT_EQ(
        named(vocab * dim * 4),
        "the weights, gradient or moments of tok_embeddings.weight or the weights, gradient or moments of "
        "output.weight [152064, 3584] of float32");
    EXPECT_EQ(named(12345678), "");

    // LibTorch's GPU allocator rounds requests up to multiples of 2 MiB, and serves requests below 10 MiB
    // from blocks of 2 or 20 MiB.
    const int64_t key_bytes = 512 * dim * 4;  // 7 MiB
    EXPECT_NE(named(key_bytes), "");
    EXPECT_EQ(named(8 << 20), "");
    EXPECT_EQ(named(20 << 20), "");
    const int64_t query_bytes = dim * dim * 2, step = 2 << 20;  // 24.5 MiB
    EXPECT_EQ(named((query_bytes + step - 1) / step * step),
              "the copy for computation of layers.0.attention.wo.weight [3584, 3584] of bfloat16");
    EXPECT_EQ(named((4608 * dim * 2 + step - 1) / step * step),
              "the copy for computation of layers.0.attention.wq.weight to layers.0.attention.wv.weight "
              "[4608, 3584] of bfloat16");
}

}  // namespace
}  // namespace argosy::plan
