// The conversion target for a folder of torch.distributed.checkpoint, from which TorchTitan goes on.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "interop/names.h"
#include "interop/target.h"
#include "pytorch/distributed_checkpoint_writer.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using pytorch::Object, pytorch::ObjectDict, pytorch::ObjectList, pytorch::ObjectTuple;
using Objects = std::map<std::string, Object>;

constexpr const char* kAverage = ".exp_avg";

/// The place of the run (lib/trainer/resume/FORMAT.md).
struct RunState {
    int64_t step = 0, num_updates = 0;
};

RunState run_state(const ModelSource& source) {
    const auto state = parse_json(source.description->state, source.path.string());
    const int64_t step = source.description->step;
    return {step, state.value("updates", step)};
}

/// The keys of torch.optim.AdamW's groups in 2.11 and in versions before it. A load sets all of them, so the
/// implementation is TorchTitan's default.
ObjectDict adamw_group(const OptimizerSettings& settings) {
    return {{"betas", {ObjectTuple{{{settings.beta1}, {settings.beta2}}}}},
            {"eps", {settings.eps}},
            {"amsgrad", {false}},
            {"maximize", {false}},
            {"foreach", {false}},
            {"capturable", {false}},
            {"differentiable", {false}},
            {"fused", {true}},
            {"decoupled_weight_decay", {true}}};
}

/// The keys of torch.optim.Muon's groups and of TorchTitan's DistMuon.
ObjectDict muon_group(const OptimizerSettings& settings) {
    return {{"momentum", {settings.momentum}},
            {"nesterov", {settings.nesterov}},
            {"ns_coefficients", {ObjectTuple{{{3.4445}, {-4.7750}, {2.0315}}}}},
            {"eps", {1e-7}},
            {"ns_steps", {settings.ns_steps}},
            {"adjust_lr_fn", {settings.adjust_lr}},
            {"foreach", {false}},
            {"fused", {false}}};
}

/// Adds optimizer.param_groups.<fqn>.<key> for each state of `map`.
void add_groups(const TensorMap& map, const OptimizerSettings& settings, Objects& objects) {
    std::map<std::string, OptimizerSettings::OfParameter> known;
    const auto add = [&](const MappedTensor& ours, const std::string& prefix, const std::string& state,
                         ObjectDict group) {
        if (!ours.name.starts_with(prefix)) return;
        const std::string& theirs = ours.pieces[0].tensor;
        const std::string begin = "optimizer.state.";
        const std::string key = theirs.substr(begin.size(), theirs.size() - begin.size() - state.size());
        const auto& own = settings.parameters.at(ours.name.substr(prefix.size()));
        if (const auto [other, is_new] = known.emplace(key, own); !is_new && other->second != own) {
            throw UserError(
                "{} is one parameter of TorchTitan, but its parts have different rates or weight decays here "
                "(optimizer.groups); --dcp-names v0.2 keeps those of AdamW apart, --model-only leaves them "
                "out",
                key);
        }
        group.emplace_back("lr", Object{settings.next_lr * own.lr_factor});
        group.emplace_back("initial_lr", Object{settings.lr * own.lr_factor});
        group.emplace_back("weight_decay", Object{own.weight_decay});
        for (auto& [name, value] : group) objects["optimizer.param_groups." + key + "." + name] = value;
    };
    for (const MappedTensor& ours : map.ours) {
        add(ours, "optimizer/first/", kAverage, adamw_group(settings));
        add(ours, "optimizer/momentum/", ".momentum_buffer", muon_group(settings));
    }
}

/// Objects that TorchTitan loads beside tensors. Version 0.2 saved all that torch's scheduler of any version
/// has.
Objects objects_of(const TargetOptions& options, const TensorMap& map, const RunState& run) {
    const OptimizerSettings& settings = *options.optimizer;
    Objects objects = {{"train_state.step", {run.step}},
                       {"train_state.ntokens_seen", {int64_t{0}}},  // of one rank; for its log alone
                       {"lr_scheduler.last_epoch", {run.step}}};
    if (options.names == TorchTitanNames::V02) {
        objects["lr_scheduler.base_lrs"] = {ObjectList{{settings.lr}}};
        objects["lr_scheduler._last_lr"] = {ObjectList{{settings.next_lr}}};
        objects["lr_scheduler._step_count"] = {run.step + 1};
        objects["lr_scheduler._is_initial"] = {false};
        objects["lr_scheduler._get_lr_called_within_step"] = {false};
        objects["lr_scheduler.lr_lambdas"] = {ObjectList{Object{}}};  // None: those of the loading run
    }
    add_groups(map, settings, objects);
    return objects;
}

class DistributedTarget : public MappedTarget {
  public:
    explicit DistributedTarget(const TargetOptions& options)
        : MappedTarget(tensor_map(options), options.conversions), folder_(options.partial) {
        make_folders(folder_);
        std::vector<TensorInfo> tensors = converted();
        for (const TensorMap::Theirs& theirs : map().theirs)  // biases of experts, which are zero
            if (!is_converted(theirs.name))
                tensors.push_back({theirs.name, ElementType::Float32, theirs.shape});
        const size_t num_with_zeros = tensors.size();
        const bool has_states = options.optimizer != nullptr;
        const RunState run = has_states ? run_state(options.source) : RunState{};
        if (has_states) add_steps(tensors);
        const size_t num_with_steps = tensors.size();
        if (options.source.spec.tied_embeddings) add_head(torchtitan_head(options.names), tensors);
        writer_ = std::make_unique<pytorch::DistributedCheckpointWriter>(
            pytorch::DistributedCheckpointWriter::Options{
                folder_, tensors, has_states ? objects_of(options, map(), run) : Objects{},
                options.max_file_bytes});
        const auto updates = static_cast<float>(run.num_updates);
        for (size_t i = converted().size(); i < num_with_zeros; ++i)
            writer_->write(i, 0, std::vector<std::byte>(tensors[i].num_bytes()));
        for (size_t i = num_with_zeros; i < num_with_steps; ++i)
            writer_->write(i, 0, std::as_bytes(std::span(&updates, 1)));
    }

    std::filesystem::path finish() override {
        writer_->finish();
        return folder_;
    }

  private:
    static TensorMap tensor_map(const TargetOptions& options) {
        return torchtitan_tensors(options.source.spec, options.names, [&](const std::string& name) {
            return std::ranges::any_of(options.conversions,
                                       [&](const auto& each) { return each.to.name == name; });
        });
    }

    /// AdamW's numbers of updates: one for each parameter.
    static void add_steps(std::vector<TensorInfo>& tensors) {
        for (size_t i = 0, size = tensors.size(); i < size; ++i) {
            std::string name = tensors[i].name;
            if (!name.ends_with(kAverage)) continue;
            name.replace(name.size() - std::string_view(kAverage).size(), std::string::npos, ".step");
            tensors.push_back({name, ElementType::Float32, {}});
        }
    }

    void add_head(const std::string& name, std::vector<TensorInfo>& tensors) {
        const auto table = std::ranges::find(tensors, "tok_embeddings.weight", &TensorInfo::name);
        table_ = table - tensors.begin();
        head_ = tensors.size();
        tensors.push_back({name, table->type, table->shape});
    }

    void write(size_t number, int64_t from, std::span<const std::byte> bytes) override {
        writer_->write(number, from, bytes);
        if (head_ && number == table_) writer_->write(*head_, from, bytes);
    }

    std::filesystem::path folder_;
    std::unique_ptr<pytorch::DistributedCheckpointWriter> writer_;
    size_t table_ = 0;            // the embedding table's number
    std::optional<size_t> head_;  // that of a tied model's head
};

}  // namespace

std::unique_ptr<Target> make_distributed_target(const TargetOptions& options) {
    return std::make_unique<DistributedTarget>(options);
}

}  // namespace argosy::interop
