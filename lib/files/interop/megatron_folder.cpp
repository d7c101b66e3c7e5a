// Folders of Megatron's checkpoints: which iteration, which format, and whether the run computed the given
// model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "interop/foreign_sources.h"
#include "interop/megatron_names.h"
#include "pytorch/distributed_checkpoint.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using pytorch::DistributedCheckpoint;
using pytorch::SavedFile;
using pytorch::Value;

constexpr const char *kMegatronTracker = "latest_checkpointed_iteration.txt",
                     *kMegatronMetadata = "metadata.json", *kMegatronCommon = "common.pt";
constexpr int64_t kMaxMegatronTextBytes = 1 << 20;

// Classes of the objects beside the tensors, as megatron/core/safe_globals.py lists them; those of
// pytorch::known_classes() are left out.
constexpr std::string_view kMegatronClasses[] = {
    "types.SimpleNamespace",
    "signal.Signals",
    "megatron.core.enums.ModelType",
    "megatron.core.transformer.enums.AttnBackend",
    "megatron.core.transformer.enums.CudaGraphModule",
    "megatron.core.transformer.enums.CudaGraphScope",
    "megatron.core.transformer.enums.InferenceCudaGraphScope",
    "megatron.core.rerun_state_machine.RerunDiagnostic",
    "megatron.core.rerun_state_machine.RerunMode",
    "megatron.core.rerun_state_machine.RerunState",
    // .metadata of versions before 0.16, and the plans of all ranks, which older versions of torch keep in
    // it.
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreSavePlan",
    "torch.distributed.checkpoint.filesystem._StoragePrefix",
    "torch.distributed.checkpoint.planner.BytesIOWriteData",
    "torch.distributed.checkpoint.planner.SavePlan",
    "torch.distributed.checkpoint.planner.TensorWriteData",
    "torch.distributed.checkpoint.planner.WriteItem",
    "torch.distributed.checkpoint.planner.WriteItemType",
};

/// Refuses the format before dist_checkpointing, which has a file for each rank.
void refuse_files_of_ranks(const fs::path& folder) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("mp_rank_") || !entry.is_directory(failed)) continue;
        throw UserError(
            "{} has {}: Megatron's format torch, with a file for each rank, is not read. Let Megatron-LM "
            "save it again: the arguments of the run with --ckpt-convert-format torch_dist "
            "--ckpt-convert-save NEW",
            folder.string(), shown(name));
    }
}

/// The newest iteration of a run's folder: iter_0000100, or release for a converted model.
fs::path newest_iteration(const fs::path& folder) {
    std::string text = read_text(folder / kMegatronTracker, kMaxMegatronTextBytes);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
    const bool is_number =
        !text.empty() && text.size() < 12 && text.find_first_not_of("0123456789") == text.npos;
    if (!is_number && text != "release")
        throw UserError("{} has {} in place of an iteration", (folder / kMegatronTracker).string(),
                        shown(text));
    const fs::path newest = folder / (is_number ? fmt::format("iter_{:07}", std::stoll(text)) : text);
    if (is_there(newest)) return newest;
    throw UserError("{} names the iteration {}, but {} is not there; give the folder of another one",
                    (folder / kMegatronTracker).string(), text, newest.string());
}

/// The format that metadata.json names; empty if it is of another program.
std::string sharded_backend(const fs::path& path) {
    const auto metadata = parse_json(read_text(path, kMaxMegatronTextBytes), path.string());
    const auto format = metadata.find("sharded_backend");
    return format != metadata.end() && format->is_string() ? format->get<std::string>() : "";
}

/// The arguments of the run, from common.pt or the object that has taken its place since July 2026. There are
/// none if the folder has neither, or if they have classes beside the known ones. DamageError if the file is
/// damaged.
class MegatronArguments {
  public:
    MegatronArguments(const DistributedCheckpoint& checkpoint, bool checked) {
        const fs::path common = fs::path(checkpoint.place()) / kMegatronCommon;
        if (is_there(common) && !pytorch::is_saved_file(common))
            throw DamageError("{} is damaged: it does not begin as torch.save writes it. Copy it again",
                              common.string());
        try {
            if (is_there(common)) own_.emplace(common, kMegatronClasses);
            const SavedFile* file = own_ ? &*own_ : checkpoint.object("common_state/shard_0_1");
            if (file) find_in(file->root());
        } catch (const DamageError&) {
            throw;
        } catch (const UserError& error) {
            if (checked) return;
            spdlog::warn("{}: the arguments of the run are not compared with the model: {}",
                         checkpoint.place(), error.what());
        }
    }
    const Value* find(std::string_view name) const { return values_ ? values_->find(name) : nullptr; }
    /// NaN for an argument that is missing or no number; `of_none` for None.
    double number(std::string_view name, double of_none = std::nan("")) const {
        const Value* value = find(name);
        if (value && value->is_none()) return of_none;
        return value ? value->number().value_or(std::nan("")) : std::nan("");
    }

  private:
    void find_in(Value root) {
        if (root.kind() == Value::Kind::List && !root.items().empty()) root = root.items()[0];
        if (const Value* values = root.find("args")) values_ = *values;
    }

    std::optional<SavedFile> own_;
    std::optional<Value> values_;
};

/// The tokens before it to which a token attends, of the argument window_size, (before, after); none if it
/// attends to all.
std::optional<int64_t> window_of(const Value& argument) {
    const std::span<const Value> sides = argument.items();
    const auto before = sides.size() == 2 ? sides[0].integer() : std::nullopt;
    if (argument.is_none() || before == -1) return std::nullopt;
    return before.value_or(-2);
}

/// UserError if the run computed another model with weights of these shapes.
void check_arguments(const MegatronArguments& arguments, const model::ModelSpec& spec,
                     const std::string& place) {
    std::vector<std::string> faults;
    const auto check = [&](std::string_view name, double expected, double of_none = std::nan("")) {
        const double number = arguments.number(name, of_none);
        if (std::abs(number - expected) > 1e-6 * std::abs(expected))
            faults.push_back(fmt::format("{} is {:g}, and {:g} in the model", name, number, expected));
    };
    const auto refuse_if = [&](std::string_view name, const auto& is_refused, const std::string& why) {
        const Value* value = arguments.find(name);
        if (value && is_refused(*value)) faults.push_back(fmt::format("{}: {}", name, why));
    };
    const auto refuse = [&](std::string_view name, bool refused, const char* why) {
        refuse_if(
            name, [&](const Value& value) { return value.boolean() == refused; }, why);
    };
    const auto scales_by = [&](model::RopeScaling::Type type) {
        return spec.rope_scaling && spec.rope_scaling->type == type;
    };
    check("num_attention_heads", static_cast<double>(spec.num_heads));
    check("kv_channels", static_cast<double>(spec.head_dim));
    check("rotary_base", spec.rope_theta);
    check("rotary_percent", spec.rotary_dim == 0 ? 1 : 1. * spec.rotary_dim / spec.head_dim);
    check("norm_epsilon", spec.norm_eps);
    check("layernorm_epsilon", spec.norm_eps);
    refuse("rotary_interleaved", true, "the elements of rotary pairs are neighbours, which is not read");
    refuse("swiglu", false, "the MLP has no gate");
    const bool scales = scales_by(model::RopeScaling::Type::Llama3),
               divides = scales_by(model::RopeScaling::Type::Linear);
    refuse("use_rope_scaling", !scales, "the model scales its rotary frequencies in another way");
    if (scales) check("rope_scaling_factor", spec.rope_scaling->factor);
    check("rotary_seq_len_interpolation_factor", divides ? spec.rope_scaling->factor : 1, 1);
    const auto rotates = [&](const Value& type) {
        return type.text() && *type.text() == "rope" && !scales_by(model::RopeScaling::Type::Yarn);
    };
    refuse_if("position_embedding_type", std::not_fn(rotates), "only rope, without YaRN, is read");
    refuse_if(
        "no_rope_freq", [](const Value& layers) { return !layers.is_none() && layers.integer() != 0; },
        "layers that do not rotate are not read");
    const auto before = spec.sliding_window ? std::optional(*spec.sliding_window - 1) : std::nullopt;
    refuse_if(
        "window_size", [&](const Value& window) { return window_of(window) != before; },
        before ? fmt::format("the model's window is ({}, 0)", *before) : "the model has no window");
    if (spec.sliding_window) check("window_attn_skip_freq", static_cast<double>(spec.full_layer_period), 0);
    if (arguments.number("vocab_size") > static_cast<double>(spec.vocab_size))
        check("vocab_size", static_cast<double>(spec.vocab_size));
    refuse("apply_layernorm_1p", true, "norms multiply by 1 + w, which is not read");
    if (faults.empty()) return;
    throw UserError(
        "{}: its run had another model than the one that is given: {}. Give the config.json of "
        "the run's model",
        place, fmt::join(faults, "; "));
}

}  // namespace

std::optional<fs::path> megatron_folder(const fs::path& folder) {
    if (is_there(folder / kMegatronTracker)) {
        const fs::path newest = newest_iteration(folder);
        if (auto found = megatron_folder(newest)) return found;
        throw UserError("{} has no {}: its save did not end; give the folder of another iteration",
                        newest.string(), kMegatronMetadata);
    }
    refuse_files_of_ranks(folder);
    const bool has_chunks = pytorch::is_distributed_checkpoint(folder);
    if (!has_chunks && !is_there(folder / kMegatronCommon)) return std::nullopt;
    if (!is_there(folder / kMegatronMetadata)) {
        if (!folder.filename().string().starts_with("iter_")) return std::nullopt;
        throw UserError(
            "{} has no {}: its save did not end, or it has Megatron's format torch_dcp or fsdp_dtensor, "
            "which is not read. Give the folder of another iteration, or save it with --ckpt-format "
            "torch_dist",
            folder.string(), kMegatronMetadata);
    }
    const std::string format = sharded_backend(folder / kMegatronMetadata);
    if (format == "torch_dist") return folder;
    if (format.empty()) return std::nullopt;
    throw UserError(
        "{}: Megatron's format {} is not read. Load it with the Megatron-LM that wrote it, and save it with "
        "--ckpt-format torch_dist",
        folder.string(), shown(format));
}

ModelSource open_megatron(const fs::path& folder, const OpenOptions& options) {
    ModelSource source{.form = Form::Distributed, .path = folder};
    if (!give_model(options, source)) {
        throw UserError(
            "{} is of Megatron, whose files have no config.json. Name a Hugging Face folder with that of the "
            "model and the tokenizer's files (convert-checkpoint --assets; a run has its own model)",
            folder.string());
    }
    auto checkpoint = std::make_unique<DistributedCheckpoint>(folder, kMegatronClasses, options.metadata);
    const MegatronArguments arguments(*checkpoint, options.checked);
    check_arguments(arguments, source.spec, folder.string());
    const double multiple =
        arguments.number("make_vocab_size_divisible_by") * arguments.number("tensor_model_parallel_size");
    source.weights_alone =
        "only the weights of a checkpoint of Megatron are read, not its optimizer's states, its step and "
        "its schedule";
    spdlog::info("{}: {}", folder.string(), source.weights_alone);
    source.tensors = with_megatron_names(std::move(checkpoint), source.spec, multiple, options.checked);
    return source;
}

}  // namespace argosy::interop
