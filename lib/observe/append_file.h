// A file that only grows, by whole lines or records. Owns its descriptor; one thread.
#pragma once

#include <string>
#include <string_view>

namespace argosy::observe {

class AppendFile {
  public:
    /// Opens `path`, or makes it with its folders, to go on at its end. Throws RunError.
    explicit AppendFile(std::string path);
    AppendFile(AppendFile&& other) noexcept;
    AppendFile& operator=(AppendFile&&) = delete;
    ~AppendFile();

    /// Adds `bytes`; they have left the process when this returns. Throws RunError when they cannot be
    /// written whole; what went in of them is then taken back.
    void append(std::string_view bytes);

    /// The same with `line`, which comes without its newline, on a line of its own.
    void append_line(const std::string& line);

  private:
    std::string path_;
    int file_ = -1;
};

}  // namespace argosy::observe
