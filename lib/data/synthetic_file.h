// A JSONL file of the synthetic corpus. The first record carries the writer's mark, a key that readers of
// records ignore. A later run of the tool replaces only files that have the mark. A signal between two
// records ends the run with RunError (base/stop_request.h).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/partial_file.h"

namespace argosy::data {

/// Whether the file at `path` has the writer's mark.
bool is_synthetic(const std::filesystem::path& path);

class SyntheticFile {
  public:
    /// UserError as in PartialFile.
    explicit SyntheticFile(const std::filesystem::path& path);

    /// Buffers the record; the buffer is written to disk when it exceeds one megabyte.
    void append(nlohmann::json record);

    /// Writes what is buffered. Nothing may be appended after it.
    void finish();

    /// Makes the file appear under its name. REQUIRES: finish() was called.
    void commit() { file_.commit(); }

  private:
    PartialFile file_;
    std::string buffer_;
    bool marked_ = false;
};

}  // namespace argosy::data
