// Files that only grow, by whole lines or records. Some of them have one line per step, such as
// metrics.jsonl, and may hold lines of an earlier run. A run that resumes from a checkpoint repeats some
// steps: their old lines are moved to another file. Another run in the same folder appends its lines and logs
// a warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace argosy::observe {

/// Owns a file descriptor. One thread uses the object.
class AppendFile {
  public:
    /// Opens `path` to append; creates the file and its folders if they are missing. Throws RunError.
    explicit AppendFile(std::string path);
    AppendFile(AppendFile&& other) noexcept;
    AppendFile& operator=(AppendFile&&) = delete;
    ~AppendFile();

    /// Appends `bytes`; the bytes have left the process when append() returns. Throws RunError if not all
    /// bytes could be written, and removes the written part if possible.
    void append(std::string_view bytes);

    /// Appends `line`, which has no newline, as a line of its own.
    void append_line(const std::string& line);

  private:
    std::string path_;
    int file_ = -1;
};

/// The step of the last line that has a step; none if there is no file, or no such line in its last mebibyte.
std::optional<int64_t> last_step(const std::filesystem::path& metrics_file);

/// Moves the lines after the last line of `step` or of an earlier step to the end of `file`.aside, and logs
/// the move: a run that resumes after `step` writes the later steps again. An incomplete last line, left by a
/// killed process, moves too. Throws RunError if a file cannot be written.
void set_aside_steps_after(int64_t step, const std::filesystem::path& file);

/// Logs how a run that begins with `first_step` continues a file whose last line has `last_step`. Logs a
/// warning if the lines must come from another run (`first_step` is 1, or steps are missing between),
/// information if steps repeat, and nothing if `first_step` directly follows.
void log_continuation(const std::filesystem::path& metrics_file, int64_t last_step, int64_t first_step);

}  // namespace argosy::observe
