#include "resume/joint_opener.h"

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

JointOpener::JointOpener(const config::JobConfig& config, const model::ModelSpec& spec,
                         const layout::MeshShape& mesh, comm::Communicator& control, JointWork& work)
    : config_(config),
      spec_(spec),
      mesh_(mesh),
      control_(control),
      work_(work),
      node_(comm::ranks_of_node(control)) {}

Faults JointOpener::open(const std::filesystem::path& path, Want want, ModelSource& source) {
    const auto open_own = [&]() -> std::vector<std::string> {
        source = interop::open_model(path, {.accepted = {config_.model.accept_config_keys},
                                            .assets = config_.model.hf_assets_path,
                                            .spec = spec_});
        if (want != Want::OwnStep) return {};
        if (!source.description) return {path.string() + " is a model, not a step of a run"};
        parse_scalars(source.description->state, path.string());
        return {};
    };
    const auto unless_known = [&](bool known, const auto& work) {
        return work_.find_faults([&] { return known ? std::vector<std::string>() : work(); });
    };
    // 1. the first rank of each node opens the checkpoint
    Faults faults = unless_known(!is_first_of_node(), open_own);
    if (!faults.texts.empty()) return faults;
    // 2. the others open it; a model that is no step they read themselves
    std::string manifest;
    if (is_first_of_node() && source.form == interop::Form::Sharded)
        manifest = checkpoint::to_json(source.checkpoint->manifest());
    manifest = comm::broadcast_text(*node_, manifest);
    const std::string place = comm::broadcast_text(*node_, source.path.string());
    faults = unless_known(is_first_of_node(), [&]() -> std::vector<std::string> {
        if (manifest.empty()) return open_own();
        source = interop::open_known_step(place, manifest);
        return {};
    });
    return faults.texts.empty() ? compare_between_nodes(source, manifest) : faults;
}

/// A step's manifest identifies its save, and has the checks of all its shards. Returns faults of the bytes
/// that were read.
Faults JointOpener::compare_between_nodes(const ModelSource& source, const std::string& manifest) {
    checkpoint::Hash own = checkpoint::hash_of(manifest);
    if (control_.size() == 1) return {};
    Faults faults = work_.find_faults([&]() -> std::vector<std::string> {
        if (manifest.empty() && is_first_of_node()) own = hash_of_samples(*source.tensors);
        return {};
    });
    if (!faults.texts.empty()) return faults;
    own = comm::broadcast(*node_, own);
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
