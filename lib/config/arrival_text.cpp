// What people read of a translation: its table, the file that it writes, and answers to words of PyTorch,
// DeepSpeed, Megatron and Hugging Face for what keys do here (configs/ARRIVING.md explains them).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "config/arrival.h"

namespace argosy::config {
namespace {

constexpr const char* kFullShard =
    "FULL_SHARD (FSDP, ZeRO-3) is --parallelism.data_parallel_shard_degree N; gathered weights are freed "
    "after "
    "forward, which is the default without a pipeline";
constexpr const char* kGradOp =
    "SHARD_GRAD_OP (ZeRO-2) is --parallelism.data_parallel_shard_degree N with "
    "--parallelism.fsdp_reshard_after_forward never";
constexpr const char* kReplicas =
    "DDP (NO_SHARD, ZeRO-0) is --parallelism.data_parallel_replicate_degree N with "
    "--parallelism.data_parallel_shard_degree 1";
constexpr const char* kHybrid =
    "HYBRID_SHARD (HSDP) is --parallelism.data_parallel_replicate_degree NODES with "
    "--parallelism.data_parallel_shard_degree RANKS_PER_NODE";
constexpr const char* kZero =
    "ZeRO stage 1 or 2 is --parallelism.data_parallel_shard_degree N with "
    "--parallelism.fsdp_reshard_after_forward never, stage 3 without the latter";
constexpr const char* kOffload =
    "nothing is kept on the host: shard over more ranks, or --optimizer.state_dtype bfloat16, or "
    "--activation_checkpoint.mode full; pretrain --search chooses";
constexpr const char* kOverlap = "transfers overlap computation in any case; there is nothing to set";
constexpr const char* kRecompute = "it is --activation_checkpoint.mode selective or full";
constexpr const char* kAccumulation =
    "gradients are accumulated over --training.global_batch_size / (--training.local_batch_size x "
    "data-parallel "
    "ranks) microbatches";
constexpr const char* kLocalBatch = "it is --training.local_batch_size, the samples of a rank";
constexpr const char* kPrecision =
    "it is --training.mixed_precision_param bfloat16, with the weights in --training.dtype float32";
constexpr const char* kRanks =
    "the launcher says the ranks: mpirun -n N pretrain ..., or jobs/submit.sh F.toml --nodes N";
constexpr const char* kStrategy =
    "FSDPStrategy(...) is --parallelism.data_parallel_shard_degree N (-1, the default: all ranks that are "
    "left), DDP "
    "data_parallel_replicate_degree N, HYBRID_SHARD both, and SHARD_GRAD_OP needs fsdp_reshard_after_forward "
    "never";
constexpr const char* kFloat8 = "it is --model.converters quantize.linear.float8";

constexpr ForeignWord kWords[] = {
    // PyTorch's FSDP and DDP
    {"full_shard", kFullShard},
    {"fsdp", kFullShard},
    {"fsdp2", kFullShard},
    {"fully_shard", kFullShard},
    {"shard_grad_op", kGradOp},
    {"no_shard", kReplicas},
    {"ddp", kReplicas},
    {"hybrid_shard", kHybrid},
    {"hsdp", kHybrid},
    {"sharding_strategy",
     "FULL_SHARD is --parallelism.data_parallel_shard_degree N, NO_SHARD data_parallel_replicate_degree N, "
     "HYBRID_SHARD both, and SHARD_GRAD_OP needs fsdp_reshard_after_forward never"},
    {"reshard_after_forward", "it is --parallelism.fsdp_reshard_after_forward default, always or never"},
    {"auto_wrap_policy", "embedding, each layer and head are gathered on their own; there is nothing to set"},
    {"state_dict_type",
     "a checkpoint is sharded and shows whole tensors to any HDF5 tool; convert-checkpoint SRC DST --to full "
     "or hf "
     "writes one file"},
    {"use_orig_params", "each parameter is cut on its own, so there are no flat parameters"},
    {"sync_module_states", "initial weights are the same on every mesh without being sent"},
    {"backward_prefetch", kOverlap},
    {"forward_prefetch", kOverlap},
    {"limit_all_gathers", kOverlap},
    {"bucket_cap_mb", kOverlap},
    {"cpu_offload", kOffload},
    {"mixed_precision", kPrecision},
    {"devices", kRanks},
    {"num_nodes", kRanks},
    {"strategy", kStrategy},
    {"precision",
     "bf16-mixed is the default; bf16-true is --training.dtype bfloat16; 16-mixed is "
     "--training.mixed_precision_param "
     "float16; 32-true is --training.mixed_precision_param float32"},
    {"nproc_per_node", kRanks},
    {"nnodes", kRanks},
    // DeepSpeed
    {"zero_stage", kZero},
    {"zero_optimization", kZero},
    {"offload_optimizer", kOffload},
    {"offload_param", kOffload},
    {"overlap_comm", kOverlap},
    {"reduce_bucket_size", kOverlap},
    {"train_batch_size", "it is --training.global_batch_size, the samples of a step"},
    {"train_micro_batch_size_per_gpu", kLocalBatch},
    {"gradient_accumulation_steps", kAccumulation},
    {"gradient_clipping", "it is --training.max_norm"},
    // Megatron
    {"tensor_model_parallel_size", "it is --parallelism.tensor_parallel_degree"},
    {"pipeline_model_parallel_size", "it is --parallelism.pipeline_parallel_degree"},
    {"context_parallel_size", "it is --parallelism.context_parallel_degree"},
    {"tp_comm_overlap", "it is --parallelism.enable_async_tensor_parallel true, false or auto"},
    {"sequence_parallel",
     "the sequence is split between matrices whenever --parallelism.tensor_parallel_degree > 1"},
    {"num_layers_per_virtual_pipeline_stage",
     "it is --parallelism.pipeline_parallel_schedule Interleaved1F1B with "
     "--parallelism.pipeline_parallel_layers_per_stage"},
    {"use_distributed_optimizer",
     "--parallelism.data_parallel_shard_degree shards moments, gradients and weights"},
    {"recompute_granularity", kRecompute},
    {"gradient_checkpointing", kRecompute},
    {"micro_batch_size", kLocalBatch},
    {"per_device_train_batch_size", kLocalBatch},
    {"train_iters", "it is --training.steps"},
    {"bf16", kPrecision},
    {"fp16", "it is --training.mixed_precision_param float16, with a dynamic loss scale"},
    {"fp8_format", kFloat8},
};

std::string key_and_value(const ArrivedKey& key) {
    return on_one_line(key.value.empty() ? key.key : fmt::format("{} = {}", key.key, key.value));
}

/// A word of a command of the shell.
std::string shell_word(const std::string& word) {
    const auto is_plain = [](unsigned char letter) {
        return std::isalnum(letter) ||
               std::string_view("/._-+=:,@%").find(static_cast<char>(letter)) != std::string_view::npos;
    };
    if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
    std::string quoted = "'";
    for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    return quoted + "'";
}

}  // namespace

/// A former name is applied until none fits: a key may have had several.
std::string newest_name(const ForeignTable& table, std::string key) {
    for (std::size_t round = 0; round < 3; ++round) {
        for (const FormerName& name : table.former_names) {
            const bool is_prefix = name.before.back() == '.' || name.before.back() == '_';
            if (is_prefix ? key.starts_with(name.before) : key == name.before) {
                key = std::string(name.now) + key.substr(name.before.size());
                break;
            }
        }
    }
    return key;
}

const ForeignKey* find_row(const ForeignTable& table, std::string_view key) {
    for (const ForeignKey& row : table.keys) {
        // A row for a whole section leaves out the keys of this program.
        if (row.key.ends_with('.') ? key.starts_with(row.key) && !find_field(key) : row.key == key)
            return &row;
    }
    return nullptr;
}

std::optional<std::string> our_spelling(std::string_view values, const std::string& theirs) {
    while (true) {
        const std::size_t end = std::min(values.find('|'), values.size());
        const std::string_view entry = values.substr(0, end);
        const std::size_t equals = std::min(entry.rfind('='), entry.size());
        if (entry.starts_with('*') || entry == theirs) return theirs;
        if (equals < entry.size() && entry.substr(0, equals) == theirs)
            return std::string(entry.substr(equals + 1));
        if (end == values.size()) return std::nullopt;
        values.remove_prefix(end + 1);
    }
}

std::optional<std::pair<std::string, std::string>> our_option(const std::string& name,
                                                              const std::string& word) {
    const std::string key = newest_name(torchtitan_table(), name);
    const ForeignKey* row = find_row(torchtitan_table(), key);
    if (!row || row->use != ForeignKey::Use::ToKey || row->ours.find(' ') != std::string_view::npos)
        return std::nullopt;
    const auto ours = our_spelling(row->values, word);
    if (!ours || ours->empty() || *ours == word) return std::nullopt;
    return std::pair{row->ours.empty() ? key : std::string(row->ours), *ours};
}

const ForeignTable& table_of(ForeignProgram program) {
    return program == ForeignProgram::TorchTitan ? torchtitan_table() : litgpt_table();
}

std::string_view fate_name(Fate fate) {
    constexpr std::string_view kNames[] = {"taken", "equivalent", "harmless", "missing"};
    return kNames[static_cast<std::size_t>(fate)];
}

int Arrival::count(Fate fate) const {
    return static_cast<int>(std::ranges::count(keys, fate, &ArrivedKey::fate));
}

std::string arrival_text(const Arrival& arrival, const ArrivalRequest& request) {
    std::size_t width = 0;
    constexpr std::size_t kMaxWidth = 64;
    for (const ArrivedKey& key : arrival.keys) width = std::max(width, key_and_value(key).size());
    width = std::min(width, kMaxWidth);
    std::string text;
    for (const ArrivedKey& key : arrival.keys) {
        text +=
            fmt::format("{:<10}  {:<{}}  {}\n", fate_name(key.fate), key_and_value(key), width, key.sentence);
    }
    return text + fmt::format(
                      "{} taken, {} equivalent, {} harmless, {} missing\n"
                      "start: mpirun -n N pretrain --config {}{}\n",
                      arrival.count(Fate::Taken), arrival.count(Fate::Equivalent),
                      arrival.count(Fate::Harmless), arrival.count(Fate::Missing), shell_word(request.output),
                      arrival.given.contains("training.dataset_path") ? "" : " --training.dataset_path F.h5");
}

std::string arrival_toml(const Arrival& arrival, const ArrivalRequest& request) {
    try {
        check_consistency(arrival.config);
    } catch (const UserError& error) {
        throw UserError("the keys that follow from {} contradict each other: {}", request.path, error.what());
    }
    std::string text = fmt::format("{}{} {}\n", kArrivalMark,
                                   table_of(request.program).option.substr(std::string_view("from-").size()),
                                   on_one_line(request.path));
    for (const ArrivedKey& key : arrival.keys) {
        if (key.fate == Fate::Missing) text += fmt::format("# missing: {}\n", key_and_value(key));
    }
    for (const Section& section : schema()) {
        std::string lines;
        for (const Field& field : section.fields) {
            if (!arrival.given.contains(field.key)) continue;
            lines += fmt::format("{} = {}\n", field.name, toml_text(field.get(arrival.config)));
        }
        if (!lines.empty()) text += fmt::format("\n[{}]\n{}", section.name, lines);
    }
    return text;
}

std::span<const ForeignWord> foreign_words() { return kWords; }

std::string foreign_answer(std::string_view key) {
    std::string word(key.substr(key.rfind('.') + 1));
    std::ranges::transform(word, word.begin(), [](char letter) {
        return letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    });
    const auto known = std::ranges::find(foreign_words(), word, &ForeignWord::word);
    if (known != foreign_words().end()) return std::string(known->answer);
    const ForeignTable& table = torchtitan_table();
    const std::string name = newest_name(table, std::string(key));
    if (name != key && find_field(name)) return fmt::format("its name is {}", name);
    const ForeignKey* row = find_row(table, name);
    const auto in_section = [&](const ForeignKey& other) { return other.key.starts_with(name + "."); };
    if (!row && std::ranges::none_of(table.keys, in_section)) return "";
    return fmt::format("it is TorchTitan's{}; pretrain --from-torchtitan F.toml translates a whole file",
                       row && row->sentence.size() ? fmt::format(" ({})", row->sentence) : "");
}

}  // namespace argosy::config
