// Which exceptions report exhausted memory, and the message made of them; pretrain.memory tests whole runs.
#include "plan/training_memory.h"

#include <gtest/gtest.h>

#include <functional>
#include <new>

#include "base/error.h"
#include "expect_error.h"
#include "observe/step_timer.h"

namespace argosy::plan {
namespace {

void explain(const config::JobConfig& config, const std::function<void()>& fail) {
    const MemoryAccount account(config);
    try {
        fail();
    } catch (...) {
        account.explain();
    }
}

TEST(MemoryAccount, OnlyASmallerStepHelpsIfItsDataAloneIsTooLarge) {
    config::JobConfig config;
    config.training.local_batch_size = 8;
    config.training.global_batch_size = 64;
    const auto explain_data = [&](size_t tensor_bytes) {
        MemoryAccount account(config);
        account.enter_phase(observe::describe(observe::Phase::Data));
        try {
            throw MemoryError({size_t{3} << 29, tensor_bytes}, "none");
        } catch (...) {
            account.explain();
        }
    };
    EXPECT_ERROR(explain_data(size_t{1} << 30), RunError,
                 "1.5 GiB requested in the reading of a step's data. What would need less: "
                 "training.local_batch_size below 8; training.global_batch_size below 64; "
                 "training.seq_len below 2048");
    EXPECT_ERROR(explain_data(size_t{1} << 31), RunError, "of a step's data", "activation_checkpoint.mode");
}

TEST(MemoryAccount, NamesTheRequestAndTheRemedies) {
    config::JobConfig config;
    config.training.local_batch_size = 8;
    const auto fail = [] { throw MemoryError({size_t{3} << 29, size_t{1} << 30}, "none"); };
    EXPECT_ERROR(explain(config, fail), RunError, "out of memory: 1.5 GiB requested. What would need less: ",
                 "training.local_batch_size below 8", "training.seq_len below 2048",
                 "activation_checkpoint.mode = full (it is selective)",
                 "optimizer.state_dtype = bfloat16 (it is float32)",
                 "training.gradient_accumulation_dtype = bfloat16 (it is float32)",
                 "training.dtype = bfloat16 (it is float32)", "more ranks to shard over");
    config.parallelism.pipeline_parallel_degree = 2;
    config.parallelism.pipeline_parallel_microbatch_size = 4;
    config.parallelism.data_parallel_replicate_degree = 2;
    EXPECT_ERROR(explain(config, fail), RunError, "pipeline_parallel_microbatch_size below 4",
                 "data_parallel_replicate_degree below 2",
                 "parallelism.fsdp_reshard_after_forward = always (it is default)");
    config.parallelism.pipeline_parallel_schedule = config::PipelineSchedule::ZbvZeroBubble;
    EXPECT_ERROR(explain(config, fail), RunError,
                 "pipeline_parallel_schedule = Interleaved1F1B (with ZBVZeroBubble",
                 "gradients of its logits");
    EXPECT_ERROR(explain(config, [] { throw std::bad_alloc(); }), RunError, "out of memory. What");
}

TEST(MemoryAccount, NamesThePhaseOfTheRun) {
    const config::JobConfig config;
    MemoryAccount account(config);
    account.enter_phase("preparing");
    account.enter_phase("the optimizer's update");
    try {
        throw MemoryError({size_t{1} << 30, 0}, "none");
    } catch (...) {
        EXPECT_ERROR(account.explain(), RunError,
                     "out of memory: 1 GiB requested in the optimizer's update. What");
    }
}

TEST(MemoryAccount, LeavesOtherErrorsAsTheyAre) {
    const config::JobConfig config;
    EXPECT_ERROR(explain(config, [] { throw UserError("a mistake"); }), UserError, "a mistake");
    EXPECT_THROW(explain(config, [] { throw std::logic_error("another"); }), std::logic_error);
}

}  // namespace
}  // namespace argosy::plan
