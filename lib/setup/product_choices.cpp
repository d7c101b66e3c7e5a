#include "setup/product_choices.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/output.h"
#include "gpu/device.h"
#include "observe/append_file.h"

namespace argosy::setup {
namespace {

bool are_searched(const config::JobConfig& config, const comm::Communicator& world) {
    return config.compile.search_algorithms && !config.debug.plain_operations &&
           gpu::holds(at::empty({0}, world.device()));
}

/// Content of a file; empty if the file does not exist.
std::string text_of(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

ProductChoices::ProductChoices(const config::JobConfig& config, const comm::Communicator& world,
                               ops::OpsContext& tensors)
    : tensors_(tensors) {
    if (!are_searched(config, world)) return;
    const std::filesystem::path folder = std::filesystem::path(config.job.dump_folder) / "products";
    file_ = folder / fmt::format("rank-{:05}.txt", world.rank());
    kept_ = text_of(file_);
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
