#include "account/training_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "setup/options.h"
#include "setup/process.h"

namespace argosy::account {
namespace {

using observe::gibibytes_text;
using observe::Shortage;
using plan::HeldBytes;

constexpr const char* kFailureFolder = "out-of-memory";
/// The job ends after this time, whether or not the other ranks have written their snapshots.
constexpr double kMaxSecondsOfAnswers = 5;

std::vector<std::string> lasting_parts(const HeldBytes& held) {
    return {"weights " + gibibytes_text(held.weights),
            "their copies for computation " + gibibytes_text(held.copies),
            "gradients " + gibibytes_text(held.gradients),
            "optimizer states " + gibibytes_text(held.moments)};
}

/// Lists the uses of memory during a step. On a GPU, these and parts_beside_tensors() add up to the GPU's
/// memory. On the host, they add up to the bytes of all tensors, if that number is known.
std::vector<std::string> parts_of_a_step(const HeldBytes& held, const Shortage& found) {
    std::vector<std::string> parts = lasting_parts(held);
    parts.push_back("gathered units " + gibibytes_text(held.gathered));
    if (!found.tensor_bytes) return parts;
    parts.push_back("activations and the rest " +
                    gibibytes_text(std::max<int64_t>(*found.tensor_bytes - held.total(), 0)));
    return parts;
}

/// Lists the uses of the memory that ran out. REQUIRES: the model is, or was to be, in that memory.
std::string breakdown(const std::optional<HeldBytes>& planned, const std::optional<HeldBytes>& held,
                      const Shortage& found) {
    std::vector<std::string> parts;
    std::string text;
    if (held) {
        parts = parts_of_a_step(*held, found);
    } else if (planned) {
        text = fmt::format("; the model under construction needs {} before the first step: {}",
                           gibibytes_text(planned->total()), fmt::join(lasting_parts(*planned), ", "));
        if (found.tensor_bytes) parts = {"tensors so far " + gibibytes_text(*found.tensor_bytes)};
    }
    if (found.gpu) std::ranges::copy(parts_beside_tensors(found), std::back_inserter(parts));
    if (parts.empty()) return text;
    return fmt::format("; {}: {}{}", which_memory(found), fmt::join(parts, ", "), text);
}

/// Remedies for a shortage of host memory in a run on GPUs: each rank of a node adds to the use of host
/// memory.
std::vector<std::string> remedies_for_the_host(const config::JobConfig& config) {
    std::vector<std::string> found = {"fewer ranks per node"};
    if (config.checkpoint.saves()) {
        found.push_back("more ranks to shard over (each rank's copy for saving is in host memory)");
    }
    if (config.comm.shared_memory) {
        found.push_back(fmt::format("comm.shared_memory_mib below {}", config.comm.shared_memory_mib));
    }
    return found;
}

/// Changes of settings that would save memory, each with the current value of the setting.
std::vector<std::string> remedies(const config::JobConfig& config, bool on_gpu) {
    std::vector<std::string> found;
    const auto add = [&](bool helps, std::string text) {
        if (helps) found.push_back(std::move(text));
    };
    const config::Training& training = config.training;
    const config::Parallelism& parallelism = config.parallelism;
    const bool pipelined = parallelism.pipeline_parallel_degree > 1;
    const int64_t microbatch = parallelism.pipeline_parallel_microbatch_size;
    const bool narrow = training.dtype == config::Precision::BFloat16;
    const auto& states = config.optimizer.state_dtype;
    const auto& gradients = training.gradient_accumulation_dtype;
    const bool is_double = training.dtype == config::Precision::Float64;
    add(!pipelined && training.local_batch_size > 1,
        fmt::format("training.local_batch_size below {}", training.local_batch_size));
    add(pipelined && microbatch > 1,
        fmt::format("parallelism.pipeline_parallel_microbatch_size below {}", microbatch));
    add(training.seq_len > 1, fmt::format("training.seq_len below {}", training.seq_len));
    add(config.activation_checkpoint.mode != config::RecomputeMode::Full,
        fmt::format("activation_checkpoint.mode = full (it is {})",
                    name_of(config.activation_checkpoint.mode)));
    add(states != config::Precision::BFloat16 && !is_double,
        fmt::format("optimizer.state_dtype = bfloat16 (it is {})",
                    name_of(states.value_or(config::Precision::Float32))));
    add(gradients != config::Precision::BFloat16 && !is_double,
        fmt::format("training.gradient_accumulation_dtype = bfloat16 (it is {})",
                    name_of(gradients.value_or(training.mixed_precision_reduce))));
    add(!narrow && training.mixed_precision_param == config::Precision::BFloat16,
        fmt::format("training.dtype = bfloat16 (it is {})", name_of(training.dtype)));
    add(parallelism.data_parallel_replicate_degree > 1,
        fmt::format("parallelism.data_parallel_replicate_degree below {}, with as many times more shards",
                    parallelism.data_parallel_replicate_degree));
    add(parallelism.data_parallel_replicate_degree == 1, "more ranks to shard over");
    add(parallelism.fsdp_reshard_after_forward != config::ReshardAfterForward::Always &&
            (pipelined || parallelism.fsdp_reshard_after_forward == config::ReshardAfterForward::Never),
        fmt::format("parallelism.fsdp_reshard_after_forward = always (it is {})",
                    name_of(parallelism.fsdp_reshard_after_forward)));
    const std::string_view schedule = name_of(parallelism.pipeline_parallel_schedule);
    add(pipelined && schedule.ends_with("ZeroBubble") && parallelism.pipeline_parallel_schedule_csv.empty(),
        fmt::format(
            "parallelism.pipeline_parallel_schedule = Interleaved1F1B (with {} the last stage keeps the "
            "gradients of its logits until their weight gradients are computed)",
            schedule));
    add(on_gpu && setup::uses_graphs(config), "compile.graphs = false (a graph keeps its own memory)");
    add(on_gpu && config.compile.side_stream,
        "compile.side_stream = false (it keeps a layer's tensors longer, and a workspace of its own)");
    add(config.debug.plain_operations,
        "debug.plain_operations = false (plain operations keep copies in wider types)");
    return found;
}

}  // namespace

train::Trainer MemoryAccount::make_trainer(const train::TrainerOptions& options, comm::Mesh& mesh,
                                           const observe::MemoryMeter& memory) {
    tensors_ = large_tensors(options, mesh);
    memory_ = memory;
    world_ = &mesh.world();
    rank_ = world_->rank();
    enter_phase("the construction of the model");
    world_->on_call([self = shared_from_this()] { self->answer(); });
    try {
        return train::Trainer(options, mesh);
    } catch (...) {
        plan_memory(options, mesh);
        throw;
    }
}

/// If memory has run out, asks the other ranks for their snapshots, while they wait for this rank.
void MemoryAccount::call_others() {
    if (world_->size() == 1 || !observe::find_shortage()) return;
    has_called_ = true;
    {
        const std::lock_guard lock(mutex_);
        is_written_ = true;  // by explain()
    }
    world_->call();
}

/// Writes the snapshot of a rank that another rank has called, unless this rank's memory has run out too.
void MemoryAccount::answer() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_written_, true)) return;
    try {
        write_snapshot(
            config_, kFailureFolder, memory_->snapshot(),
            {.rank = rank_, .of_caller = false, .held = held_, .named = named_, .tensors = tensors_});
    } catch (const std::exception&) {  // memory may be short here as well
    }
}

void MemoryAccount::plan_memory(const train::TrainerOptions& options, const comm::Mesh& mesh) {
    try {
        planned_ = plan::planned_bytes(options, mesh.shape(), mesh.world().rank());
    } catch (const std::exception&) {  // the options may be what was refused, or memory is short
    }
}

MemoryAccount::Watch::~Watch() {
    record();
    if (account_.has_called_) account_.world_->wait_for_answers(kMaxSecondsOfAnswers);
}

void MemoryAccount::Watch::record() const {
    try {
        account_.record(trainer_);
    } catch (const std::exception&) {  // recording may itself run out of memory
    }
}

void MemoryAccount::record(train::Trainer& trainer) {
    if (const auto* op = trainer.step().executor().failed_op()) under_way_ = *op;
    const std::lock_guard lock(mutex_);
    held_ = plan::held_bytes(trainer.model(), trainer.step().optimizer());
    named_ = named_blocks(trainer.model(), trainer.step().optimizer());
}

/// A sentence with the path of the snapshot; empty if there is none. The snapshot of a processor is that of
/// the failed request; on a GPU, the exception has freed some blocks.
std::string MemoryAccount::write_failure(const Shortage& found) const {
    if (!memory_) return "";
    const std::lock_guard lock(mutex_);
    is_written_ = true;  // in place of an answer's file
    try {
        auto snapshot = memory_->failed_snapshot();
        if (!snapshot) snapshot = memory_->snapshot();
        const auto path = write_snapshot(config_, kFailureFolder, *snapshot,
                                         {.rank = rank_,
                                          .requested_bytes = found.requested_bytes,
                                          .held = held_,
                                          .named = named_,
                                          .tensors = tensors_});
        return path.empty() ? "" : fmt::format(". {} lists the largest tensors", path.string());
    } catch (const std::exception&) {  // memory is short
        return "";
    }
}

/// The number of bytes that the failed allocation requested, and the tensors that have this size.
std::string MemoryAccount::request(const Shortage& found) const {
    const std::string names = found.requested_bytes ? names_of_size(tensors_, *found.requested_bytes) : "";
    return request_text(found) + (names.empty() ? "" : ", the size of " + names);
}

std::string MemoryAccount::place() const {
    if (under_way_) return " in " + parallel::describe(*under_way_);
    return phase_ ? fmt::format(" in {}", phase_) : "";
}

void MemoryAccount::explain() const {
    const auto found = observe::find_shortage();
    if (!found) throw;
    const bool on_gpu = setup::computes_on_gpu();
    const bool beside_the_model = on_gpu && found->where == Shortage::Where::Host;
    if (beside_the_model) {
        throw RunError("out of memory{}{}{}. What would need less: {}", request_text(*found), place(),
                       host_memory(*found), fmt::join(remedies_for_the_host(config_), "; "));
    }
    throw RunError("out of memory{}{}{}. What would need less: {}{}", request(*found), place(),
                   breakdown(planned_, held_, *found), fmt::join(remedies(config_, on_gpu), "; "),
                   write_failure(*found));
}

}  // namespace argosy::account
