#include "observe/earlier_run.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"

namespace argosy::observe {
namespace {

constexpr std::streamoff kTailBytes = 1 << 20;  // a line has some hundred bytes

}  // namespace

std::optional<int64_t> last_step(const std::filesystem::path& metrics_file) {
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(metrics_file, unreadable)) return {};  // a pipe would have no end
    std::ifstream file(metrics_file, std::ios::binary | std::ios::ate);
    if (!file) return {};
    file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kTailBytes));
    std::optional<int64_t> last;
    for (std::string line; std::getline(file, line);) {
        const auto object = nlohmann::json::parse(line, nullptr, false);
        if (!object.is_object()) continue;
        const auto step = object.find("step");
        if (step != object.end() && step->is_number_integer()) last = step->get<int64_t>();
    }
    return last;
}

void log_continuation(const std::filesystem::path& metrics_file, int64_t last_step, int64_t first_step) {
    const std::string path = metrics_file.string();
    if (first_step == 1 || first_step > last_step + 1) {
        spdlog::warn(
            "{} has steps up to {} of an earlier run; this one's follow them, from step {} on. Set "
            "job.dump_folder to another folder to keep runs apart",
            path, last_step, first_step);
    } else if (first_step <= last_step) {
        spdlog::info("{} has steps up to {}; those from {} on come again", path, last_step, first_step);
    }
}

}  // namespace argosy::observe
