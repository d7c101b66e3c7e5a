// A file that only grows, by whole lines or records: metrics.jsonl, skipped_updates.jsonl, event files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/raw_file.h"

namespace argosy::observe {

/// Makes a folder in job.dump_folder, and its parents. Throws PathError, whose remedy names `setting`.
void make_run_folder(const std::filesystem::path& folder, const std::string& setting = "job.dump_folder");

/// One thread uses the object.
class AppendFile {
  public:
    /// Opens `path` to append; creates the file and its folders if they are missing. Throws PathError. The
    /// remedies of errors name `setting`, which chooses the folder.
    explicit AppendFile(std::string path, std::string setting = "job.dump_folder");

    /// If the path no longer names the file, because someone has removed the file or its folder, logs an
    /// error and opens a new file there. Returns whether it did. Throws PathError.
    bool renew();

    /// Appends `bytes`; the bytes have left the process when append() returns. Throws RunError if not all
    /// bytes could be written, and removes the written part if possible.
    void append(std::string_view bytes);

    /// Appends `line`, which has no newline, as a line of its own, after renew().
    void append_line(const std::string& line);

  private:
    std::string path_, setting_;
    Descriptor file_;
};

}  // namespace argosy::observe
