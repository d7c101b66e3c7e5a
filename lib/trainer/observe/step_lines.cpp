#include "observe/step_lines.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/strict_json.h"
#include "observe/append_file.h"

namespace argosy::observe {
namespace {

constexpr std::streamoff kTailBytes = 1 << 20;  // a line has several hundred bytes

/// The step of a line; none if the line has no step. Lines that this program wrote begin with the step, so
/// they need no JSON parser.
std::optional<int64_t> step_of(const std::string& line) {
    constexpr std::string_view kStart = "{\"step\":";
    int64_t step = 0;
    if (line.starts_with(kStart) && line.ends_with("}")) {
        const auto [end, error] =
            std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
        if (error == std::errc() && (*end == ',' || *end == '}')) return step;
    }
    try {
        const auto object = parse_json(line, "a line of the file");
        const auto found = object.find("step");
        if (found == object.end() || !found->is_number_integer()) return {};
        return found->get<int64_t>();
    } catch (const UserError&) {
        return {};  // a killed process leaves such lines
    }
}

bool is_json(const std::string& text) {
    try {
        parse_json(text, "a line of the file");
        return true;
    } catch (const UserError&) {
        return false;
    }
}

/// An incomplete line without its last value, which may lack digits, and with the closing brace. A line that
/// only lacks its newline stays as it is. None if no value is left.
std::optional<std::string> mended(const std::string& line) {
    if (is_json(line)) return line;
    for (size_t comma = line.rfind(','); comma != std::string::npos && comma > 0;
         comma = line.rfind(',', comma - 1)) {
        std::string whole = line.substr(0, comma) + "}";
        if (is_json(whole)) return whole;
    }
    return {};
}

struct Tail {
    std::optional<std::streamoff> begin;  // offset in bytes; none: no line to move
    int64_t num_lines = 0;
    std::optional<std::string> mended = {};  // replaces the file's only line after `begin`
};

/// Finds the lines at the file's end that belong to steps after `step`, or are incomplete and cannot be
/// mended.
Tail tail_after(int64_t step, const std::filesystem::path& file) {
    Tail tail;
    std::ifstream lines(file, std::ios::binary);
    std::streamoff begin = 0;
    for (std::string line; std::getline(lines, line); begin += static_cast<std::streamoff>(line.size()) + 1) {
        const bool is_incomplete = lines.eof();
        const auto whole = is_incomplete ? mended(line) : line;
        const auto found = whole ? step_of(*whole) : std::nullopt;
        if (found && *found <= step) {
            tail = {};
            if (whole != line) tail = {begin, 0, whole};
        } else if (found || is_incomplete || tail.begin) {
            if (!tail.begin) tail.begin = begin;
            ++tail.num_lines;
        }
    }
    return tail;
}

}  // namespace

void set_aside_steps_after(int64_t step, const std::filesystem::path& file) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) return;
    const Tail tail = tail_after(step, file);
    if (!tail.begin) return;
    const std::string aside = file.string() + ".aside";
    if (!tail.mended) {
        std::ifstream lines(file, std::ios::binary);
        lines.seekg(*tail.begin);
        AppendFile kept(aside);
        for (std::string line; std::getline(lines, line);) kept.append_line(line);
    }
    std::filesystem::resize_file(file, *tail.begin, error);
    if (error) throw RunError("cannot cut '{}' after step {}: {}", file.string(), step, error.message());
    if (tail.mended) {
        AppendFile(file.string()).append_line(*tail.mended);
        spdlog::info("{}: the last line was incomplete; its whole values were kept", file.string());
    } else {
        spdlog::info("{}: the last {} lines, of steps after {}, are now in {}", file.string(), tail.num_lines,
                     step, aside);
    }
}

std::optional<int64_t> last_step(const std::filesystem::path& metrics_file) {
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(metrics_file, unreadable)) return {};  // a pipe has no end
    std::ifstream file(metrics_file, std::ios::binary | std::ios::ate);
    if (!file) return {};
    file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kTailBytes));
    std::optional<int64_t> last;
    for (std::string line; std::getline(file, line);) {
        if (const auto step = step_of(line)) last = step;
    }
    return last;
}

void log_missing_steps(const std::filesystem::path& metrics_file, int64_t last_step, int64_t last_own_step) {
    if (last_step >= last_own_step) return;
    spdlog::warn("{} lacks the lines of steps {} to {}: this run had ended before they were written",
                 metrics_file.string(), last_step + 1, last_own_step);
}

void log_continuation(const std::filesystem::path& metrics_file, int64_t last_step, int64_t first_step) {
    const std::string path = metrics_file.string();
    if (first_step == 1 || first_step > last_step + 1) {
        spdlog::warn(
            "{} has steps up to {} of an earlier run; this run appends its steps, from step {} on. Set "
            "job.dump_folder to another folder to keep runs apart",
            path, last_step, first_step);
    } else if (first_step <= last_step) {
        spdlog::info("{} has steps up to {}; this run repeats those from {} on", path, last_step, first_step);
    }
}

}  // namespace argosy::observe
