// A file that only grows, by whole lines or records, and the lines that an earlier run left in such a file
// with one line per step, as metrics.jsonl. A run that only happens to use the same folder must not mix its
// lines with them silently; a run that resumes from a checkpoint writes some steps again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace argosy::observe {

/// The object owns its descriptor; one thread uses it.
class AppendFile {
  public:
    /// Opens `path` to append; creates the file and its folders where they are missing. Throws RunError.
    explicit AppendFile(std::string path);
    AppendFile(AppendFile&& other) noexcept;
    AppendFile& operator=(AppendFile&&) = delete;
    ~AppendFile();

    /// Appends `bytes`; they have left the process when this returns. Throws RunError if they cannot be
    /// written whole; a part that was written is then removed again.
    void append(std::string_view bytes);

    /// Appends `line`, which has no newline, as a line of its own.
    void append_line(const std::string& line);

  private:
    std::string path_;
    int file_ = -1;
};

/// The step of the last whole line; none if there is no file or no step within its last megabyte.
std::optional<int64_t> last_step(const std::filesystem::path& metrics_file);

/// Moves lines of steps after `step` from the file's end to the end of `file`.aside and logs it: a run that
/// resumes after `step` writes these steps again. An unfinished last line, left by a killed process, moves
/// with them. Lines before the last line of `step` or of an earlier step stay. Throws RunError where files
/// cannot be written.
void set_aside_steps_after(int64_t step, const std::filesystem::path& file);

/// Logs how a run that begins with `first_step` continues a file whose last line is of `last_step`: a warning
/// unless it can be the same run, restarted; nothing where `first_step` directly follows.
void log_continuation(const std::filesystem::path& metrics_file, int64_t last_step, int64_t first_step);

}  // namespace argosy::observe
