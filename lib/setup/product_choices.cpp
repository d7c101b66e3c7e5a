#include "setup/product_choices.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "base/output.h"
#include "base/raw_file.h"
#include "gpu/device.h"
#include "observe/append_file.h"

namespace argosy::setup {
namespace {

constexpr int64_t kMaxBytes = 16 << 20;

bool are_searched(const config::JobConfig& config, const comm::Communicator& world) {
    return config.compile.search_algorithms && !config.debug.plain_operations &&
           gpu::holds(at::empty({0}, world.device()));
}

}  // namespace

ProductChoices::ProductChoices(const config::JobConfig& config, const comm::Communicator& world,
                               ops::OpsContext& tensors)
    : tensors_(tensors) {
    if (!are_searched(config, world)) return;
    const std::filesystem::path folder = std::filesystem::path(config.job.dump_folder) / "products";
    file_ = folder / fmt::format("rank-{:05}.txt", world.rank());
    if (std::filesystem::exists(file_)) kept_ = read_text(file_, kMaxBytes);
    try {
        tensors.multiplier().remember(kept_);
    } catch (const UserError& error) {
        throw UserError("'{}': {}", file_.string(), error.what());
    }
}

void ProductChoices::keep() {
    if (file_.empty()) return;
    const int num_problems = tensors_.multiplier().num_problems();
    if (num_problems == num_kept_) return;
    std::string text = tensors_.multiplier().choices();
    if (text != kept_) {
        observe::make_run_folder(file_.parent_path());
        PartialFile file(file_, [](const auto&) { return true; });  // the run owns its folder
        file.append(text);
        file.commit();
        kept_ = std::move(text);
    }
    num_kept_ = num_problems;
}

}  // namespace argosy::setup
