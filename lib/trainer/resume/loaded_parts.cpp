#include "resume/loaded_parts.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/values.h"
#include "config/print.h"
#include "gpu/element_type.h"
#include "setup/options.h"
#include "train/lr_schedule.h"
#include "train/run_limits.h"

namespace argosy::resume {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;

/// Keys that do not affect training. log_differences() leaves them out.
constexpr std::array<std::string_view, 7> kUnimportantKeys = {
    "job.dump_folder",      "training.first_sample",        "job.description",     "checkpoint.folder",
    "checkpoint.load_step", "checkpoint.initial_load_path", "model.hf_assets_path"};

LoadedParts all_but_excluded(const config::Checkpoint& checkpoint) {
    const auto wanted = [&](config::SavedPart part) {
        return std::ranges::find(checkpoint.exclude_from_loading, part) ==
               checkpoint.exclude_from_loading.end();
    };
    return {.optimizer = wanted(config::SavedPart::Optimizer),
            .dataloader = wanted(config::SavedPart::DataLoader),
            .train_state = wanted(config::SavedPart::TrainState)};
}

/// Converts the saved position to samples of `seq_len` tokens, so that the number of tokens before the
/// position stays the same. The next token stays the same only if the samples come in the file's order.
int64_t samples_of_length(const Scalars& scalars, int64_t seq_len, const std::string& place) {
    if (scalars.seq_len == seq_len) return scalars.position.samples;
    const int64_t samples = scalars.position.samples * scalars.seq_len / seq_len;
    spdlog::info("{} has samples of {} tokens, this run of {}: sample {} there is sample {} here", place,
                 scalars.seq_len, seq_len, scalars.position.samples, samples);
    return samples;
}

/// The changed settings that bring the samples in another order. Without training.shuffle, neither their
/// length nor the seed does.
std::vector<std::string> changes_of_order(const config::JobConfig& config, const std::string& saved_config) {
    const std::vector<std::string> all = config::differences(saved_config, config::print_toml(config));
    const auto changes_of = [&](const std::vector<std::string_view>& keys) {
        std::vector<std::string> lines;
        for (const std::string& line : all) {
            if (std::ranges::find(keys, std::string_view(line).substr(0, line.find(':'))) != keys.end())
                lines.push_back(line);
        }
        return lines;
    };
    const auto shuffle = changes_of({"training.shuffle"});
    if (!shuffle.empty() || !config.training.shuffle) return shuffle;
    return changes_of({"training.seq_len", "debug.seed"});
}

/// The change of the learning rate between a checkpoint of an older version and this run; empty if no step to
/// come is one of the warm-up. Another number of warm-up steps is a change of the configuration, which the
/// log lists apart.
std::string change_of_warmup(int64_t warmup_steps, const Scalars& then) {
    if (then.lr_schedule >= train::LrSchedule::kVersion || then.position.step >= warmup_steps) return {};
    return fmt::format(
        "learning rate of the warm-up: optimizer.lr * step / (warmup_steps + 1) then, optimizer.lr * step / "
        "warmup_steps now, until step {}",
        warmup_steps);
}

void check(const TensorSource& source, const HeldSlab& held) {
    if (held.if_missing && source.find(held.tensor.name) == nullptr) return;
    if (held.tensor.name.starts_with("optimizer/") && source.find(held.tensor.name) == nullptr) {
        throw UserError(
            "{} lacks {}: it was saved with another optimizer; set optimizer.name (of a router: "
            "optimizer.muon_routers) as it was, or set checkpoint.exclude_from_loading = optimizer to start "
            "with new optimizer states",
            source.place(), held.tensor.name);
    }
    const TensorInfo& found = source.at(held.tensor.name);
    if (found.shape != held.tensor.shape) {
        throw UserError(
            "{}: {} has the shape [{}], but the run's model needs [{}]; load a checkpoint of this model",
            source.place(), found.name, fmt::join(found.shape, ", "), fmt::join(held.tensor.shape, ", "));
    }
    if (is_floating(found.type)) return;
    throw UserError(
        "{}: {} has elements of type {}; weights and optimizer states must be f64, f32, bf16 or f16",
        source.place(), found.name, found.type_name());
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

void load(const TensorSource& source, const TensorInfo& stored, const HeldSlab& held) {
    if (held.slab.num_elements() == 0) return;
    if (stored.type == held.tensor.type && held.elements.is_cpu()) {
        return source.read(stored, held.slab, bytes_of(held.elements));
    }
    const at::Tensor elements = at::empty(held.elements.sizes(), gpu::scalar_type(stored.type).value());
    source.read(stored, held.slab, bytes_of(elements));
    held.elements.copy_(elements);
}

/// training.max_tokens needs the tokens of the steps that are done.
void refuse_unknown_tokens(const config::JobConfig& config, const checkpoint::Description& description,
                           const LoadedParts& parts, const std::string& place) {
    if (!parts.train_state || !config.training.max_tokens ||
        parse_scalars(description.state, place).knows_tokens)
        return;
    throw UserError(
        "training.max_tokens is set, but {} does not say how many tokens its run has trained on ({} counts "
        "those of one rank); set training.steps in its place",
        place, description.program);
}

void refuse_float16(const std::string& state, const std::string& place) {
    if (!parse_scalars(state, place).has_loss_scale) return;
    throw UserError(
        "{} was saved by a run that computed in float16, which this version does not; begin a new run with "
        "its weights (checkpoint.initial_load_path)",
        place);
}

}  // namespace

LoadedParts parts_to_resume(const config::JobConfig& config, const layout::MeshShape& mesh,
                            const checkpoint::Description& description) {
    refuse_float16(description.state, fmt::format("step {}", description.step));
    LoadedParts parts = all_but_excluded(config.checkpoint);
    refuse_unknown_tokens(config, description, parts, fmt::format("step {}", description.step));
    if (!description.model_only || !parts.optimizer) return parts;
    parts.optimizer = false;
    const train::Position position = parse_scalars(description.state, "its manifest").position;
    if (final_step(setup::run_limits_options(config, mesh), position) <= position.step) return parts;
    throw UserError(
        "step {} was saved as the last one, with the weights alone (checkpoint.last_save_model_only): the "
        "run cannot go on from there. Resume from an earlier step (checkpoint.load_step), begin a new run "
        "with these weights (checkpoint.initial_load_path), or start with new optimizer states "
        "(checkpoint.exclude_from_loading = optimizer)",
        description.step);
}

LoadedParts parts_to_begin_with(const config::JobConfig& config,
                                const std::optional<checkpoint::Description>& description,
                                const std::string& place, const std::string& weights_alone) {
    if (config.checkpoint.initial_load_model_only) return {};
    const LoadedParts parts = all_but_excluded(config.checkpoint);
    const bool has_state = description && description->state != "{}";
    if (has_state) refuse_float16(description->state, place);
    if (has_state && (!description->model_only || !parts.optimizer)) {
        refuse_unknown_tokens(config, *description, parts, place);
        if (config.training.first_sample == 0 || !has_place(*description, parts, place)) return parts;
        throw UserError(
            "training.first_sample = {}, but {} has its own place in the data; remove the setting, or set "
            "checkpoint.exclude_from_loading = dataloader",
            config.training.first_sample, place);
    }
    if (!weights_alone.empty()) {
        const char* const or_step =
            ", or set checkpoint.exclude_from_loading = optimizer to go on at its step with new states";
        throw UserError(
            "{}: {}, but checkpoint.initial_load_model_only = false needs the whole state; set it to true{}",
            place, weights_alone, has_state ? or_step : "");
    }
    throw UserError(
        "{} holds {}, but checkpoint.initial_load_model_only = false needs the whole state; set it to true, "
        "or name an earlier step: a run's last step has the weights alone with "
        "checkpoint.last_save_model_only, which TorchTitan sets by default",
        place, has_state ? "weights without optimizer states" : "the weights alone");
}

bool has_place(const checkpoint::Description& description, const LoadedParts& parts,
               const std::string& place) {
    return parts.dataloader && parse_scalars(description.state, place).knows_samples;
}

train::Position restore_scalars(const checkpoint::Description& description, const std::string& place,
                                const LoadedParts& parts, const Fresh& fresh, RunState& state) {
    const Scalars scalars = parse_scalars(description.state, place);
    train::Position position{.samples = fresh.first_sample};
    if (parts.optimizer) state.restore_optimizer(scalars);
    if (parts.dataloader && scalars.knows_samples) {
        position.samples = samples_of_length(scalars, state.seq_len(), place);
    }
    if (parts.train_state) {
        position.step = scalars.position.step;
        position.tokens =
            scalars.knows_tokens ? scalars.position.tokens : position.step * fresh.tokens_per_step;
        state.restore_guard(scalars);
    }
    return position;
}

void warn_of_other_samples(const config::JobConfig& config, const checkpoint::Description& then,
                           const std::string& place, int64_t next_sample, const RunState& state,
                           comm::Communicator& control) {
    // The data is compared on every rank, because a node may have files of its own.
    const std::vector<std::string> data = comm::all_gather_texts(control, state.data());
    if (control.rank() != 0) return;
    if (const auto changes = changes_of_order(config, then.config); !changes.empty()) {
        spdlog::warn(
            "{}: this is NOT THE SAME PLACE IN THE DATA. The samples come in another order, so that in this "
            "epoch some tokens come a second time and others not at all",
            fmt::join(changes, "; "));
    }
    constexpr size_t kMaxRanksNamed = 8;
    const std::string data_then = parse_scalars(then.state, place).data;
    std::vector<int> others;
    for (int rank = 0; std::cmp_less(rank, data.size()); ++rank) {
        if (data[rank] != data_then) others.push_back(rank);
    }
    if (data_then.empty() || others.empty()) return;
    spdlog::warn(
        "{} was saved by a run on OTHER DATA{}: other files, of other lengths or in another order, or other "
        "weights of data.mixture. Sample {} of this run's data comes next; to begin with sample {} "
        "(training.first_sample), set checkpoint.exclude_from_loading = dataloader for this start",
        place, others.size() == data.size() ? "" : " than that of rank " + listed(others, kMaxRanksNamed),
        next_sample, config.training.first_sample);
}

void log_differences(const config::JobConfig& config, const layout::MeshShape& mesh,
                     const checkpoint::Description& then) {
    const auto say = [](const std::string& line) {
        spdlog::info("differs from when it was saved: {}", line);
    };
    if (then.config.empty()) return;  // of another program
    const Scalars scalars = parse_scalars(then.state, "its manifest");
    const std::string warmup = change_of_warmup(config.lr_scheduler.warmup_steps, scalars);
    if (!warmup.empty()) say(warmup);
    if (then.mesh != mesh.name()) say(fmt::format("mesh: {} then, {} now", then.mesh, mesh.name()));
    for (const std::string& line : config::differences(then.config, config::print_toml(config))) {
        const auto is_of = [&](std::string_view key) { return line.starts_with(std::string(key) + ":"); };
        if (std::ranges::none_of(kUnimportantKeys, is_of)) say(line);
    }
}

void check_tensors(const TensorSource& source, std::span<const HeldSlab> slabs) {
    for (const HeldSlab& held : slabs) check(source, held);
}

void load_slabs(const TensorSource& source, std::span<const HeldSlab> slabs) {
    const c10::InferenceMode guard;  // the thread that made the tensors was in inference mode, too
    check_tensors(source, slabs);
    std::map<std::string, const HeldSlab*> by_name;
    for (const HeldSlab& held : slabs) {
        by_name[held.tensor.name] = &held;
        if (held.if_missing) at::Tensor(held.elements).fill_(*held.if_missing);
    }
    for (const TensorInfo& stored : source.tensors()) {
        const auto held = by_name.find(stored.name);
        if (held != by_name.end()) load(source, stored, *held->second);
    }
}

std::string conversions(const TensorSource& source, std::span<const HeldSlab> slabs) {
    std::set<std::string> kinds;
    for (const HeldSlab& held : slabs) {
        const TensorInfo* stored = source.find(held.tensor.name);
        if (stored == nullptr || stored->type == held.tensor.type) continue;
        const std::string what = held.tensor.name.substr(0, held.tensor.name.find('/'));
        kinds.insert(fmt::format("{}: {} becomes {}", what, stored->type_name(), held.tensor.type_name()));
    }
    return fmt::format("{}", fmt::join(kinds, ", "));
}

checkpoint::Hash hash_of_samples(const checkpoint::TensorSource& source) {
    constexpr int64_t kMaxSampled = 256;
    std::vector<const checkpoint::TensorInfo*> matrices;
    for (const checkpoint::TensorInfo& tensor : source.tensors()) {
        if (tensor.name.starts_with("model/") && tensor.shape.size() == 2) matrices.push_back(&tensor);
    }
    std::ranges::sort(matrices, {}, &checkpoint::TensorInfo::name);
    checkpoint::Hasher hasher;
    const int64_t step = divide_up(std::ssize(matrices), kMaxSampled);
    for (int64_t i = 0; i < std::ssize(matrices); i += step) {
        const checkpoint::TensorInfo& tensor = *matrices[i];
        std::vector<std::byte> row(tensor.shape[1] * size_bytes(tensor.type));
        source.read(tensor, {{tensor.shape[0] / 2, 0}, {1, tensor.shape[1]}}, row);
        hasher.add(row);
    }
    return hasher.value();
}

}  // namespace argosy::resume
