// A temporary folder for a test, removed with its contents at the end of its scope.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace argosy {

class ScratchFolder {
  public:
    ScratchFolder() : path_((std::filesystem::temp_directory_path() / "argosy-test-XXXXXX").string()) {
        if (!::mkdtemp(path_.data())) throw std::runtime_error("cannot make " + path_);
    }
    ~ScratchFolder() { std::filesystem::remove_all(path_); }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    std::filesystem::path operator/(const std::string& name) const {
        return std::filesystem::path(path_) / name;
    }

    /// The number of files and folders directly in it.
    int num_entries() const {
        const std::filesystem::directory_iterator entries(path_);
        return static_cast<int>(std::distance(begin(entries), end(entries)));
    }

  private:
    std::string path_;
};

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace argosy
