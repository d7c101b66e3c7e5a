#include "setup/start_record.h"

#include <fmt/chrono.h>

#include <ctime>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "config/print.h"
#include "cuda/device.h"
#include "model/parameter.h"
#include "observe/append_file.h"
#include "setup/setup.h"

namespace argosy::setup {
namespace {

constexpr const char* kConfigMark = "# pretrain ";  // print_config() begins with it

/// The degrees of the axes that have several ranks, the slowest axis first.
nlohmann::ordered_json degrees_of(const layout::MeshShape& mesh) {
    nlohmann::ordered_json degrees = nlohmann::ordered_json::object();
    for (int axis = 0; axis < layout::kNumAxes; ++axis) {
        if (mesh.degrees[axis] > 1)
            degrees[layout::AxisSet(static_cast<layout::Axis>(axis)).name()] = mesh.degrees[axis];
    }
    return degrees;
}

std::string start_line(const config::JobConfig& config, const model::ModelSpec& spec,
                       const RankContext& context, StepRange steps, const std::string& config_text) {
    const layout::MeshShape& mesh = context.mesh.shape();
    const train::BatchSizes sizes = batch_sizes(config, mesh);
    const bool on_gpu = context.device.is_cuda();
    const auto [compute, master, reduce] = number_types(config.training);
    const nlohmann::ordered_json line = {
        {"time", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
        {"first_step", steps.first},
        {"last_step", steps.last},
        {"version", version()},
        {"host", host_name()},
        {"ranks", mesh.num_ranks()},
        {"mesh", degrees_of(mesh)},
        {"device", on_gpu ? cuda::describe_device(cuda::current_device()).name : "cpu"},
        {"number_types", {{"compute", compute}, {"master", master}, {"reduce", reduce}}},
        {"model", model_title(config.model, spec)},
        {"parameters", model::num_parameters(spec)},
        {"sequences_per_step", sizes.global_batch},
        {"tokens_per_step", sizes.global_tokens},
        {"config", config_text},
    };
    return line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void record_start(const config::JobConfig& config, const model::ModelSpec& spec, const RankContext& context,
                  StepRange steps) {
    if (context.control->rank() != 0) return;
    const std::filesystem::path folder = config.job.dump_folder;
    const std::string config_text = config::print_config(config);
    const auto try_to_write = [](const char* file, const auto& write) {
        try {
            write();
        } catch (const std::exception& error) {
            spdlog::warn("{} in the run's folder does not show this start: {}", file, error.what());
        }
    };
    try_to_write("starts.jsonl", [&] {
        observe::AppendFile((folder / "starts.jsonl").string())
            .append_line(start_line(config, spec, context, steps, config_text));
    });
    try_to_write("effective.toml",
                 [&] { ResultFile(folder / "effective.toml", begins_with(kConfigMark)).write(config_text); });
}

}  // namespace argosy::setup
