// A range of a file, mapped into memory for reading as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace argosy::data {

class MappedFile {
  public:
    /// UserError when the file ends before offset + num_bytes. REQUIRES: num_bytes > 0.
    MappedFile(const std::filesystem::path& path, int64_t offset, int64_t num_bytes);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    /// The byte at `offset`.
    const std::byte* data() const { return data_; }

  private:
    void* pages_;
    int64_t mapped_bytes_;
    const std::byte* data_;
};

}  // namespace argosy::data
