// A JSONL file of the synthetic corpus. The first record carries the writer's mark, a key that readers of
// records ignore. A later run of the tool replaces files that have the mark, and no other file. A signal
// between two records ends the run with RunError (base/stop_request.h).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/partial_file.h"

namespace argosy::data {

/// Whether the file at `path` has the mark.
bool is_synthetic(const std::filesystem::path& path);

class SyntheticFile {
  public:
    /// UserError as of PartialFile.
    explicit SyntheticFile(const std::filesystem::path& path);

    /// Buffered; a megabyte at a time goes to disk.
    void append(nlohmann::json record);

    /// The file appears.
    void commit();

  private:
    PartialFile file_;
    std::string buffer_;
    bool marked_ = false;
};

}  // namespace argosy::data
