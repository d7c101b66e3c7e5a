// Parts of a token file that is being made from large inputs. The inputs are divided into pieces; the tokens
// of each piece are a part, a file of its own. Processes make parts in any order, and a process that ended
// loses only the parts that it had not finished. FORMAT.md specifies the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/output.h"
#include "data/encode.h"

namespace argosy::data {

/// The folder OUTPUT.parts.
class PartFolder {
  public:
    /// `plan` describes the inputs and the options from which the parts follow.
    PartFolder(std::filesystem::path folder, std::string plan);

    /// Makes the folder, or opens the one that an earlier process with the same plan left. Throws UserError
    /// if its plan is another one. One process calls this, before the others use the folder. REQUIRES: the
    /// process has locked the output (base/output.h).
    void open() const;

    /// Whether the part of a piece is whole.
    bool has(int64_t piece) const;

    /// Removes the folder.
    void remove() const;

    std::filesystem::path part_path(int64_t piece) const;

  private:
    std::filesystem::path folder_;
    std::string plan_;
};

/// Writes a part, which appears whole at commit().
class PartWriter {
  public:
    explicit PartWriter(const std::filesystem::path& path);
    void add(const EncodedDocuments& documents);
    void commit();

  private:
    PartialFile file_;
    int64_t num_blocks_ = 0, num_skipped_ = 0;
    std::optional<RecordKind> kind_;  // of the documents so far
};

/// Reads a part: calls `take` with the documents of each add() in order, which have no `first_place`, and
/// empty texts in `skipped`. UserError if the file is no part, or is damaged.
void read_part(const std::filesystem::path& path, const std::function<void(const EncodedDocuments&)>& take);

/// The number of records that a part has left out. UserError as in read_part(). Reads the part's last block.
int64_t num_skipped_in(const std::filesystem::path& path);

}  // namespace argosy::data
