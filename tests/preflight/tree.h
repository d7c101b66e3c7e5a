// A made-up node in a folder: files as the kernel shows them, and an nvidia-smi that says what a test wants.
#pragma once

#include <filesystem>
#include <string>

#include "preflight/sources.h"
#include "scratch_folder.h"

namespace argosy::preflight {

class Tree {
  public:
    /// A new file each time: one that is emptied and filled again some file systems bring to disk at once.
    void put(const std::string& path, const std::string& text) const {
        std::filesystem::create_directories((root() / path).parent_path());
        std::filesystem::remove(root() / path);
        write_file(root() / path, text);
    }
    void put_folder(const std::string& path) const { std::filesystem::create_directories(root() / path); }

    /// Shell scripts in the place of nvidia-smi and of DCGM's program.
    void put_nvidia_smi(const std::string& script) const { put_program("nvidia-smi", script); }
    void put_dcgmi(const std::string& script) const { put_program("dcgmi", script); }

    std::filesystem::path root() const { return folder_ / "."; }
    Sources sources(double gpu_seconds = 30, double hang_seconds = 20) const {
        return {root(), (root() / "nvidia-smi").string(), (root() / "dcgmi").string(), gpu_seconds,
                hang_seconds};
    }

  private:
    void put_program(const std::string& name, const std::string& script) const {
        put(name, "#!/bin/sh\n" + script);
        std::filesystem::permissions(root() / name, std::filesystem::perms::owner_all);
    }

    ScratchFolder folder_;
};

}  // namespace argosy::preflight
