// Slots that travel between the ranks of experts arrive as late as they may: when a rank waits for them.
// Shared experts compute meanwhile, and no result depends on it.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ops/work.h"
#include "support/communicator_double.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using comm::Op;
using comm::OpKind;

/// Submits all-to-alls when their end is waited for, and counts the products before that. For
/// CommunicatorDouble.
struct LateSlots {
    int num_products = 0;  // so far
    std::vector<int> products_beside = {};

    comm::Pending operator()(comm::Communicator& group, std::span<const Op> ops) {
        if (ops[0].kind != OpKind::AllToAll) return group.submit(ops);
        for (const Op& op : ops) op.out.fill_(std::numeric_limits<double>::quiet_NaN());
        return {std::make_unique<Late>(*this, group, ops), comm::tensors_of(ops), nullptr};
    }

  private:
    class Late : public comm::Completion {
      public:
        Late(LateSlots& log, comm::Communicator& group, std::span<const Op> ops)
            : log_(log), group_(group), ops_(ops.begin(), ops.end()), products_before_(log.num_products) {}
        void wait() override {
            log_.products_beside.push_back(log_.num_products - products_before_);
            group_.run(ops_);
        }

      private:
        LateSlots& log_;
        comm::Communicator& group_;
        std::vector<Op> ops_;
        int products_before_;
    };
};

TEST(LateSlots, SharedExpertsComputeMeanwhile) {
    model::ModelSpec spec = tiny_spec("qwen3");
    spec.num_layers = 1;
    spec.experts = {.router = {.num_experts = 4, .top_k = 2}, .hidden_dim = 7};
    for (const int64_t shared_hidden_dim : {0, 9}) {
        spec.experts->shared_hidden_dim = shared_hidden_dim;
        const TinyRunOptions options{.layout = {.mesh = {.shard = 2, .expert = 2}},
                                     .microbatch_size = TinyRun::kGlobalBatch / 2,
                                     .spec = spec};
        TinyRun prompt(options, world());
        const train::StepTotals expected = prompt.forward_backward(0);
        LateSlots late;
        CommunicatorDouble ranks(world(), std::ref(late));
        TinyRun run(options, ranks);
        const ops::WorkObserver products(
            [&](const ops::Work& work) { late.num_products += work.kind == ops::WorkKind::Product; });
        const train::StepTotals found = run.forward_backward(0);
        EXPECT_EQ(found.loss, expected.loss);
        EXPECT_EQ(found.squared_norm, expected.squared_norm);
        // Gate and up beside the way to the experts, down beside the way back; backward the reverse.
        EXPECT_EQ(late.products_beside,
                  shared_hidden_dim > 0 ? (std::vector{2, 1, 1, 2}) : std::vector<int>(4));
    }
}

}  // namespace
}  // namespace argosy::testing
