#include "resume/saved_steps.h"

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/step_folder.h"
#include "interop/conversion_folder.h"
#include "interop/convert.h"
#include "interop/model_source.h"
#include "setup/number_types.h"

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAside = ".aside";

/// An unused name for a step to set aside. A step of the same number may have been set aside before.
fs::path aside_path(const fs::path& step) {
    fs::path path = step.string() + std::string(kAside);
    for (int number = 2; fs::exists(path); ++number)
        path = fmt::format("{}{}-{}", step.string(), kAside, number);
    return path;
}

/// The number of a step that was set aside: 6 for "step-00000006.aside" and "step-00000006.aside-2".
std::optional<int64_t> parse_aside_name(const std::string& name) {
    const size_t at = name.find(kAside);
    if (at == std::string::npos) return std::nullopt;
    const std::optional<int64_t> step = checkpoint::parse_step_name(name.substr(0, at));
    const std::string_view rest = std::string_view(name).substr(at + kAside.size());
    const bool numbered = rest.starts_with('-') && rest.size() > 1 &&
                          rest.find_first_not_of("0123456789", 1) == std::string_view::npos;
    return rest.empty() || numbered ? step : std::nullopt;
}

constexpr int kExportThreads = 4;  // reading, converting and writing overlap; training has ended

}  // namespace

bool set_aside_later_steps(const fs::path& folder, int64_t step) noexcept {
    try {
        for (const int64_t later : checkpoint::whole_steps(folder)) {
            if (later <= step) continue;
            const fs::path to = aside_path(folder / checkpoint::step_name(later));
            fs::rename(checkpoint::step_path(folder, later), to);
            sync_folder(folder);
            spdlog::warn("step {} is set aside as {}: this run went back to an earlier step", later,
                         to.string());
        }
        return true;
    } catch (const std::exception& error) {
        spdlog::error(
            "cannot set the steps after {} in {} aside: {}. Remove them, or the next start resumes from them",
            step, folder.string(), error.what());
        return false;
    }
}

void remove_steps_set_aside(const fs::path& folder, int64_t step,
                            const checkpoint::Retention& retention) noexcept {
    if (retention.keep_latest <= 0) return;
    try {
        std::vector<fs::path> passed;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
            const std::optional<int64_t> number = parse_aside_name(entry.path().filename().string());
            if (number && *number <= step && !checkpoint::is_milestone(*number, retention))
                passed.push_back(entry.path());
        }
        for (const fs::path& path : passed) checkpoint::remove_quietly(path);
    } catch (const std::exception& error) {
        spdlog::warn("cannot remove the steps that were set aside in {}: {}", folder.string(), error.what());
    }
}

void require_export_place(const fs::path& place) {
    const fs::file_type type = fs::symlink_status(place).type();
    if (type == fs::file_type::not_found) return;
    if (type == fs::file_type::directory && interop::is_conversion(place)) return;
    throw UserError(
        "checkpoint.last_save_in_hf would replace {}, which no export wrote ({}); move it elsewhere",
        place.string(),
        type == fs::file_type::directory
            ? fmt::format("it holds '{}'", fs::directory_iterator(place)->path().filename().string())
            : "it is not a folder");
}

void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type) {
    require_export_place(place);
    const interop::ModelSource source = interop::open_model(step);
    interop::ConvertOptions options{.to = interop::Form::HuggingFace, .content = interop::Content::ModelOnly};
    if (type) options.type = setup::element_type(*type);
    checkpoint::PartialFolder partial(place);
    const fs::path made = interop::convert(source, interop::plan(source, options), options, partial.path(),
                                           {.num_threads = kExportThreads});
    interop::publish_conversion(made, place, checkpoint::Replace::Yes);
}

}  // namespace argosy::resume
