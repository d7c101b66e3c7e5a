#include "plan/training_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "observe/shortage.h"
#include "observe/step_timer.h"
#include "setup/graphs.h"
#include "setup/process.h"

namespace argosy::plan {
namespace {

using observe::gibibytes_text;
using observe::Shortage;

std::vector<std::string> lasting_parts(const HeldBytes& held) {
    return {"weights " + gibibytes_text(held.weights),
            "their copies for computation " + gibibytes_text(held.copies),
            "gradients " + gibibytes_text(held.gradients),
            "optimizer states " + gibibytes_text(held.states)};
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

/// Lists the uses of the memory that ran out. `planned`, `held`: as MemoryAccount has them. REQUIRES: the
/// model is, or was to be, in that memory.
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

std::vector<std::string> remedies_for_data(const config::Training& training) {
    std::vector<std::string> found;
    if (training.local_batch_size > 1)
        found.push_back(fmt::format("training.local_batch_size below {}", training.local_batch_size));
    if (training.global_batch_size > 1)
        found.push_back(fmt::format("training.global_batch_size below {}", training.global_batch_size));
    found.push_back(fmt::format("training.seq_len below {}", training.seq_len));
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
    // A run that has chosen has no "auto" any more.
    add(on_gpu && config.compile.graphs == config::Switch::On && setup::uses_graphs(config),
        "compile.graphs = false (a graph keeps its own memory)");
    add(config.debug.plain_operations,
        "debug.plain_operations = false (plain operations keep copies in wider types)");
    return found;
}

}  // namespace

train::Trainer MemoryAccount::make_trainer(const train::TrainerOptions& options, comm::Mesh& mesh) {
    enter_phase("the construction of the model");
    try {
        return train::Trainer(options, mesh);
    } catch (...) {
        try {
            planned_ = planned_bytes(options, mesh.shape(), mesh.world().rank());
        } catch (const std::exception&) {  // the options may be what was refused, or memory is short
        }
        throw;
    }
}

void MemoryAccount::record(train::Trainer& trainer) {
    try {
        if (const auto* op = trainer.step().executor().failed_op()) under_way_ = *op;
        held_ = held_bytes(trainer);
    } catch (const std::exception&) {  // recording may itself run out of memory
    }
}

std::string MemoryAccount::place() const {
    if (under_way_) return " in " + parallel::describe(*under_way_);
    return phase_ ? fmt::format(" in {}", phase_) : "";
}

void MemoryAccount::explain() const {
    const auto found = observe::find_shortage();
    if (!found) throw;
    const bool on_gpu = setup::computes_on_gpu();
    const bool is_beside_the_model = on_gpu && found->where == Shortage::Where::Host;
    const bool reads_data =
        !under_way_ && phase_ && std::string_view(phase_) == observe::describe(observe::Phase::Data);
    // If a step's data alone is larger than all tensors, settings of the model do not help.
    const bool data_is_too_large =
        reads_data && found->requested_bytes.value_or(0) > found->tensor_bytes.value_or(0);
    std::string uses;
    std::vector<std::string> needs_less;
    if (is_beside_the_model) {
        uses = host_memory(*found);
        needs_less = remedies_for_the_host(config_);
    } else if (!data_is_too_large) {
        uses = breakdown(planned_, held_, *found);
        needs_less = remedies(config_, on_gpu);
    }
    if (data_is_too_large)
        std::ranges::move(remedies_for_data(config_.training), std::back_inserter(needs_less));
    throw RunError("out of memory{}{}{}. What would need less: {}", request_text(*found), place(), uses,
                   fmt::join(needs_less, "; "));
}

}  // namespace argosy::plan
