#include "plan/memory_snapshot.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/output.h"
#include "base/time_limit.h"

namespace argosy::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSnapshotMark = "{\"format\": \"argosy memory snapshot\"";
/// A step allocates a little less than the one before it: its snapshot is taken where it comes near that
/// peak.
constexpr double kNearPeak = 0.99;
constexpr size_t kMaxNames = 4;

Json categories(const plan::HeldBytes& held, int64_t bytes) {
    return {{"weights", held.weights}, {"copies", held.copies},     {"gradients", held.gradients},
            {"moments", held.moments}, {"gathered", held.gathered}, {"other", bytes - held.total()}};
}

Json tensor_object(const observe::MemorySnapshot::Block& block, const SnapshotFacts& facts) {
    Json object = {{"bytes", block.num_bytes}};
    if (!block.operation.empty()) object["operation"] = block.operation;
    if (const auto found = facts.named.find(block.data); found != facts.named.end()) {
        const auto& [names, type] = found->second;
        object["names"] = std::vector(names.begin(), names.begin() + std::min(names.size(), kMaxNames));
        object["num_names"] = names.size();
        object["type"] = type;
    } else if (const std::string text = names_of_size(facts.tensors, block.num_bytes); !text.empty()) {
        object["size_of"] = text;
    }
    return object;
}

}  // namespace

NamedBlocks named_blocks(parallel::ParallelModel& model, const train::AdamW& optimizer) {
    NamedBlocks found;
    const auto add = [&](const char* what, const std::string& name, const at::Tensor& tensor) {
        if (!tensor.defined()) return;
        auto& [names, type] = found[tensor.storage().data()];
        names.push_back(fmt::format("the {} of {}", what, name));
        type = type_name(tensor.scalar_type());
    };
    const auto& parameters = model.parameters();
    for (const auto& parameter : parameters) {
        const std::string& name = parameter->spec().name;
        add("weights", name, parameter->master());
        if (!parameter->compute().is_same(parameter->master()))
            add("computed copy", name, parameter->compute());
        add("gradient", name, parameter->gradient().sum);
    }
    for (size_t i = 0; i < optimizer.moments().size() && i < parameters.size(); ++i) {
        const auto& [first, second] = optimizer.moments()[i];
        add("first moment", parameters[i]->spec().name, first);
        add("second moment", parameters[i]->spec().name, second);
    }
    return found;
}

std::string snapshot_json(const observe::MemorySnapshot& snapshot, const SnapshotFacts& facts) {
    const char* const reason = facts.step        ? "request"
                               : facts.of_caller ? "out of memory"
                                                 : "another rank is out of memory";
    Json object = {{"rank", facts.rank}, {"reason", reason}};
    if (facts.step) object["step"] = *facts.step;
    if (facts.requested_bytes) {
        object["requested_bytes"] = *facts.requested_bytes;
        object["requested_size_of"] = names_of_size(facts.tensors, *facts.requested_bytes);
    }
    object["operation"] = snapshot.operation;
    object["bytes"] = snapshot.bytes;
    object["peak_bytes"] = snapshot.peak_bytes;
    if (!snapshot.peak_operation.empty()) object["peak_operation"] = snapshot.peak_operation;
    if (facts.held) object["categories"] = categories(*facts.held, snapshot.bytes);
    if (!snapshot.bytes_by_operation.empty()) object["bytes_by_operation"] = snapshot.bytes_by_operation;
    Json& largest = object["largest"] = Json::array();
    for (const auto& block : snapshot.largest) largest.push_back(tensor_object(block, facts));
    return std::string(kSnapshotMark) + ", \"version\": 2," + object.dump(1).substr(1) + "\n";
}

std::filesystem::path write_snapshot(const config::JobConfig& config, const std::string& when,
                                     const observe::MemorySnapshot& snapshot, const SnapshotFacts& facts) {
    const auto folder =
        std::filesystem::path(config.job.dump_folder) / config.profiling.save_memory_snapshot_folder / when;
    try {
        const FileWait wait(fmt::format("writing a memory snapshot to '{}'", folder.string()));
        std::filesystem::create_directories(folder);
        const auto path = folder / fmt::format("rank-{:05}.json", facts.rank);
        ResultFile(path, begins_with(kSnapshotMark)).write(snapshot_json(snapshot, facts));
        return path;
    } catch (const std::exception& error) {  // a run does not end because a snapshot cannot be written
        spdlog::warn("no memory snapshot in {}: {}", folder.string(), error.what());
        return {};
    }
}

void MemorySnapshots::start_step(int64_t step) {
    const bool has_peak = std::exchange(has_peak_of_step_, true);
    if (!config_.profiling.enable_memory_snapshot || step % config_.profiling.profile_freq != 0) return;
    step_ = step;
    if (has_peak)
        memory_.take_snapshot_at(static_cast<int64_t>(kNearPeak * static_cast<double>(memory_.peak_bytes())));
}

void MemorySnapshots::finish_step() {
    const auto step = std::exchange(step_, {});
    if (!step) return;
    const observe::MemorySnapshot now = memory_.snapshot();
    observe::MemorySnapshot snapshot = memory_.taken_snapshot().value_or(now);
    snapshot.peak_bytes = now.peak_bytes;
    snapshot.peak_operation = now.peak_operation;
    plan::HeldBytes held = plan::held_bytes(trainer_.model(), trainer_.step().optimizer());
    held.gathered = 0;  // gathered weights are released by now
    write_snapshot(config_, fmt::format("step-{:08}", *step), snapshot,
                   {.rank = rank_,
                    .step = step,
                    .held = held,
                    .named = named_blocks(trainer_.model(), trainer_.step().optimizer()),
                    .tensors = tensors_});
}

}  // namespace argosy::plan
