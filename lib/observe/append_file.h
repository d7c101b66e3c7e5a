// A file that only grows, by whole lines or records. The object owns its descriptor; one thread uses it.
#pragma once

#include <string>
#include <string_view>

namespace argosy::observe {

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

}  // namespace argosy::observe
