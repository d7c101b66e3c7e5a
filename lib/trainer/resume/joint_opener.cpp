#include "resume/joint_opener.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"
#include "comm/values.h"
#include "resume/loaded_parts.h"
#include "resume/save_plan.h"

namespace argosy::resume {

using interop::ModelSource;

namespace {
/// The run's state, and the names, types and shapes of the tensors.
std::string contents(const ModelSource& source) {
    std::string text = source.description ? source.description->state : "";
    for (const checkpoint::TensorInfo& tensor : source.tensors->tensors())
        text += fmt::format("\n{} {} {}", tensor.name, tensor.type_name(), tensor.shape);
    return text;
}

}  // namespace

JointOpener::JointOpener(const config::JobConfig& config, const model::ModelSpec& spec,
                         const layout::MeshShape& mesh, comm::Communicator& control, JointWork& work)
    : config_(config),
      spec_(spec),
      mesh_(mesh),
      control_(control),
      work_(work),
      node_(comm::ranks_of_node(control)) {}

Faults JointOpener::open(const std::filesystem::path& path, Want want, ModelSource& source) {
    const bool is_first = control_.rank() == 0;
    std::filesystem::path place = path;
    std::string manifest, weights_alone;
    const auto open_own = [&]() -> std::vector<std::string> {
        source = interop::open_model(place, {.accepted = {config_.model.accept_config_keys},
                                             .assets = config_.model.hf_assets_path,
                                             .spec = spec_,
                                             .checked = !is_first,
                                             .metadata = manifest,
                                             .weights_alone = weights_alone});
        if (is_first_of_node()) manifest = interop::manifest_of(source);
        if (want != Want::OwnStep) return {};
        if (!source.description) return {place.string() + " is a model, not a step of a run"};
        parse_scalars(source.description->state, place.string());
        return {};
    };
    const auto on = [&](bool own, const auto& work) {
        return work_.find_faults([&] { return own ? work() : std::vector<std::string>(); });
    };
    // 1. rank 0 opens the checkpoint, and thereby takes the newest step of a folder that may still grow
    Faults faults = on(is_first, open_own);
    if (!faults.texts.empty()) return faults;
    place = comm::broadcast_text(control_, source.path.string());
    weights_alone = comm::broadcast_text(control_, source.weights_alone);
    // 2. the first rank of each other node opens that step
    faults = on(is_first_of_node() && !is_first, open_own);
    if (!faults.texts.empty()) return faults;
    // 3. the others open it, with what that rank has read; other models they read themselves
    const bool is_step = comm::broadcast(*node_, source.form == interop::Form::Sharded);
    manifest = comm::broadcast_text(*node_, manifest);
    faults = on(!is_first_of_node(), [&]() -> std::vector<std::string> {
        if (!is_step) return open_own();
        source = interop::open_known_step(place, manifest);
        return {};
    });
    return faults.texts.empty() ? compare_between_ranks(source, is_step ? manifest : "") : faults;
}

/// The manifest of a step identifies its save, and has the checks of all its shards; that of another model is
/// empty. Returns faults of the bytes that were read.
Faults JointOpener::compare_between_ranks(const ModelSource& source, const std::string& manifest) {
    checkpoint::Hash own = checkpoint::hash_of(manifest);
    if (control_.size() == 1) return {};
    Faults faults = work_.find_faults([&]() -> std::vector<std::string> {
        if (manifest.empty() && is_first_of_node()) own = hash_of_samples(*source.tensors);
        return {};
    });
    if (!faults.texts.empty()) return faults;
    own = comm::broadcast(*node_, own);
    if (manifest.empty()) own = checkpoint::hash_of(own.hex() + contents(source));
    const std::vector<checkpoint::Hash> all = comm::all_gather(control_, own);
    const auto is_other = [&](const checkpoint::Hash& hash) { return hash != all[0]; };
    const auto other = std::ranges::find_if(all, is_other);
    if (other == all.end()) return {};
    throw UserError(
        "rank {} reads another checkpoint from {} than rank 0; copy the same files to all nodes, or name a "
        "place that all nodes share",
        other - all.begin(), source.path.string());
}

Faults JointOpener::check_files(const ModelSource& source, Check check) {
    return work_.find_faults([&]() -> std::vector<std::string> {
        if (source.checkpoint == nullptr) return {};
        const int part =
            writer_of(source.checkpoint->manifest().plan, mesh_, mesh_.coordinates(control_.rank()));
        bool unreadable = false;
        std::vector<std::string> faults =
            check == Check::Bytes ? source.checkpoint->faults(part, control_.size(), &unreadable)
                                  : source.checkpoint->file_faults(part, control_.size(), &unreadable);
        if (unreadable) throw RunError("{}", fmt::join(faults, "\n"));
        return faults;
    });
}

}  // namespace argosy::resume
