#include "train/saved_steps.h"

#include <exception>

#include "base/log.h"
#include "checkpoint/step_folder.h"

namespace argosy::train {
namespace {

namespace fs = std::filesystem;

/// A name that is free: an earlier one of the number may lie aside already.
fs::path aside_path(const fs::path& step) {
    fs::path path = step.string() + ".aside";
    for (int number = 2; fs::exists(path); ++number) path = fmt::format("{}.aside-{}", step.string(), number);
    return path;
}

}  // namespace

bool set_aside_later_steps(const fs::path& folder, int64_t step) noexcept {
    try {
        for (const int64_t later : checkpoint::whole_steps(folder)) {
            if (later <= step) continue;
            const fs::path to = aside_path(folder / checkpoint::step_name(later));
            fs::rename(checkpoint::step_path(folder, later), to);
            spdlog::warn("step {} of before this run went back is now {}", later, to.string());
        }
        return true;
    } catch (const std::exception& error) {
        spdlog::error(
            "steps after {} in {} could not be set aside: {}. Remove them, or the next start resumes from "
            "them",
            step, folder.string(), error.what());
        return false;
    }
}

}  // namespace argosy::train
