// A file's bytes by their offset, without HDF5 and without a cursor: all of them or an error. Reads and
// writes may come from any thread at the same time. And what makes names durable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace argosy {

class RawFile {
  public:
    /// UserError when it is missing, unreadable or a folder.
    static RawFile open_to_read(const std::filesystem::path& path);

    /// For reading and writing. `create` makes it, or empties it; `open_to_write` wants it to be there.
    /// UserError when the place cannot be written.
    static RawFile create(const std::filesystem::path& path);
    static RawFile open_to_write(const std::filesystem::path& path);

    /// A file without a name, in the folder of `path`, for reading and writing: it goes with the process.
    /// `path` is free for the moment of its making. UserError when the folder cannot be written.
    static RawFile create_nameless(const std::filesystem::path& path);

    RawFile(RawFile&& other) noexcept;
    RawFile& operator=(RawFile&& other) noexcept;
    ~RawFile();

    const std::filesystem::path& path() const { return path_; }
    int64_t size_bytes() const;

    /// UserError, as of a torn file, when it ends before.
    void read_at(int64_t offset, std::span<std::byte> bytes) const;
    void write_at(int64_t offset, std::span<const std::byte> bytes) const;

    /// On disk, not in a cache, once it returns.
    void sync() const;

    /// Lets the disk begin with these bytes and does not wait for it: a later `sync` has less to do.
    void begin_sync(int64_t offset, int64_t num_bytes) const;

  private:
    RawFile(std::filesystem::path path, int flags);
    [[noreturn]] void fail(const char* action) const;

    std::filesystem::path path_;
    int descriptor_ = -1;
};

/// The names in a folder are on disk once it returns.
void sync_folder(const std::filesystem::path& folder);

/// What to do where the system refused for this reason (an errno), as a message's end: "; make room ...".
/// Empty where nothing is known.
const char* remedy_for(int reason);

/// The folder that a path lies in; "." where it names none.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace argosy
