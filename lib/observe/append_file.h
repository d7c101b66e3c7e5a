// A text file of whole lines that only grows. Owns its descriptor; one thread.
#pragma once

#include <string>

namespace argosy::observe {

class AppendFile {
  public:
    /// Opens `path`, or makes it with its folders, to go on at its end. Throws RunError.
    explicit AppendFile(std::string path);
    AppendFile(AppendFile&& other) noexcept;
    AppendFile& operator=(AppendFile&&) = delete;
    ~AppendFile();

    /// Adds `line`, which comes without its newline, on a line of its own; it has left the process when this
    /// returns. Throws RunError when it cannot be written whole; what went in of it is then taken back.
    void append_line(const std::string& line);

  private:
    std::string path_;
    int file_ = -1;
};

}  // namespace argosy::observe
