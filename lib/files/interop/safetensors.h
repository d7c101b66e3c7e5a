// Reads and writes tensors in Hugging Face's safetensors files. A model is one file, or several with an
// index. Tensors have the names that they have in the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/raw_file.h"
#include "checkpoint/tensor_source.h"
#include "interop/safetensors_header.h"

namespace argosy::interop {

inline constexpr const char* kSafetensorsName = "model.safetensors";
inline constexpr const char* kSafetensorsIndexName = "model.safetensors.index.json";

class Safetensors : public checkpoint::TensorSource {
  public:
    /// Opens a file, or a folder. A folder has model.safetensors, or else an index and the files that the
    /// index names. The input is not trusted: UserError, naming file and tensor, for every inconsistency.
    explicit Safetensors(const std::filesystem::path& path);

    /// Sorted by file, then by offset.
    const std::vector<checkpoint::TensorInfo>& tensors() const override { return tensors_; }
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override;
    const std::string& place() const override { return place_; }

  private:
    struct Location {
        size_t file;
        int64_t at;
    };
    void add_file(const std::filesystem::path& path);
    void add_index(const std::filesystem::path& folder);
    void check_index(const std::map<std::string, std::string>& file_of_tensor,
                     const std::string& place) const;

    std::string place_;
    std::vector<RawFile> files_;
    std::vector<checkpoint::TensorInfo> tensors_;
    std::map<std::string, Location, std::less<>> locations_;
};

/// Writes one file. Different threads may write different bytes at the same time.
class SafetensorsWriter {
  public:
    SafetensorsWriter(const std::filesystem::path& path, const std::vector<checkpoint::TensorInfo>& tensors);

    /// Writes bytes of tensor `index`, starting at its byte `from`.
    void write(size_t index, int64_t from, std::span<const std::byte> bytes);

    /// Makes the file durable. REQUIRES: every tensor has all its bytes.
    void finish() { file_.sync(); }

  private:
    SafetensorsLayout layout_;
    RawFile file_;
};

// The index of a model in several files, model.safetensors.index.json, names the file of each tensor.
// Converts the index between text and map.

/// Returns a map from tensor to file, whose name has the ending. UserError for a file outside the index's
/// folder, for a duplicate key, and for any other text that is not an index.
std::map<std::string, std::string> parse_weights_index(std::string_view text, const std::string& place,
                                                       std::string_view ending = ".safetensors");

std::string safetensors_index_json(const std::map<std::string, std::string>& file_of_tensor,
                                   int64_t total_bytes);

}  // namespace argosy::interop
