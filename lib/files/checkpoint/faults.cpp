// The search for faults in a checkpoint. Checkpoint::faults reads all bytes and compares their checks;
// file_faults only opens the shards. A part of `faults` is a range of the bytes of all files, concatenated,
// so that a part opens only the files in its range. A part of file_faults is every num_parts-th shard.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>

#include "base/error.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/input_file.h"

namespace argosy::checkpoint {
namespace {

struct FileSlab {
    const TensorInfo* tensor = nullptr;
    StoredSlab stored;
    ByteRange bytes() const { return {stored.at, stored.slab.num_elements() * size_bytes(tensor->type)}; }
};

/// The slabs that the manifest lists, by file.
std::map<int, std::vector<FileSlab>> listed_slabs(const Manifest& manifest) {
    std::map<int, std::vector<FileSlab>> slabs;
    for (const StoredTensor& tensor : manifest.tensors) {
        for (const StoredSlab& slab : tensor.slabs) slabs[slab.file].push_back({&tensor.info, slab});
    }
    return slabs;
}

/// Compares a shard's table with the slabs that the manifest lists for the shard. UserError if they differ.
void check_listed(const InputFile& shard, const Manifest& manifest, const std::vector<FileSlab>& slabs) {
    const ShardTable table = read_shard_table(shard, manifest.set);
    std::map<std::string, StoredTensor> expected;
    for (const FileSlab& slab : slabs) {
        expected[slab.tensor->name] = {*slab.tensor, {slab.stored}};
        expected[slab.tensor->name].slabs[0].file = StoredSlab::kThisFile;
    }
    for (const StoredTensor& tensor : table.tensors) {
        if (tensor.slabs.empty()) continue;
        const auto found = expected.find(tensor.info.name);
        if (found == expected.end() || found->second != tensor) {
            throw UserError("{}: its table and the manifest disagree about tensor '{}'", shard.place(),
                            tensor.info.name);
        }
        expected.erase(found);
    }
    if (!expected.empty()) {
        throw UserError("{}: its table lacks tensor '{}'", shard.place(), expected.begin()->first);
    }
}

void check_rest(const InputFile& file, std::vector<ByteRange> checked) {
    checked.push_back(file.table_file().table);
    const std::vector<ByteRange> rest = gaps(std::move(checked), file.place(), file.block().num_bytes);
    const Hash found = hash_of(file.file(), rest);
    if (found != file.block().rest) {
        throw UserError(
            "{}: HDF5's own bytes (outside the tensors) are damaged: they give the check {}, and {} was "
            "expected",
            file.place(), found.hex(), file.block().rest.hex());
    }
}

std::string asset_fault(const InputFile& file, const StoredAsset& asset) {
    const ByteRange bytes{asset.at, asset.num_bytes};
    return fault_of(file.file(), asset, hash_of(file.file(), std::span(&bytes, 1)));
}

std::string slab_fault(const InputFile& file, const FileSlab& slab) {
    const ByteRange bytes = slab.bytes();
    return fault_of(file.file(), *slab.tensor, slab.stored, hash_of(file.file(), std::span(&bytes, 1)));
}

/// Describes the tensors that have slabs in an unusable file of the folder: "; it holds parts of 12 tensors,
/// such as 'model/norm.weight'". HDF5 reads a missing file without an error, so its users are warned.
std::string lost_tensors(const Manifest& manifest, int file, const std::filesystem::path& folder) {
    if (file == StoredSlab::kThisFile) return "";
    const std::string* first = nullptr;
    int64_t count = 0;
    const auto add = [&](const TensorInfo& tensor) {
        if (count++ == 0) first = &tensor.name;
    };
    for (const StoredTensor& tensor : manifest.tensors) {
        if (std::ranges::find(tensor.slabs, file, &StoredSlab::file) != tensor.slabs.end()) add(tensor.info);
    }
    for (const CutTensor& tensor : manifest.plan.tensors) {
        if (slab_of(manifest.plan.grid, tensor, file)) add(tensor.info);
    }
    if (count == 0) return "";
    std::error_code unknown;
    const bool is_missing = !std::filesystem::exists(folder / manifest.files[file].name, unknown);
    return fmt::format(
        "; it holds parts of {} tensors, such as '{}'{}", count, *first,
        is_missing ? ", which h5py and other readers of HDF5 show as NaN (0 in integers)" : "");
}

void note_failure(const std::exception& error, bool* unreadable) {
    if (unreadable && dynamic_cast<const RunError*>(&error)) *unreadable = true;
}

/// Assigns bytes to parts. A byte's position counts the bytes of all files, one file after the other.
struct Parts {
    int part, num_parts;
    int64_t total;
    bool has(double position) const { return of(position) == part; }
    bool has_some(int64_t begin, int64_t end) const {
        return of(static_cast<double>(begin)) <= part && of(static_cast<double>(end)) >= part;
    }

  private:
    int of(double position) const {
        const int part_there = static_cast<int>(position / static_cast<double>(total) * num_parts);
        return std::clamp(part_there, 0, num_parts - 1);
    }
};

/// A check of some bytes, and the position of their middle. `find_fault` returns or throws the fault; empty:
/// none.
struct Check {
    double middle = 0;
    std::function<std::string()> find_fault;
};

/// The checks of a file. The first one covers the table and the bytes under `rest`, and has the position of
/// the file's first byte. Each of the others covers one slab or asset.
std::vector<Check> checks_of(const InputFile& file, double begin, std::vector<FileSlab> slabs,
                             const std::vector<StoredAsset>& assets,
                             const std::function<void()>& check_table) {
    std::ranges::sort(slabs, {}, [](const FileSlab& slab) { return slab.stored.at; });
    std::vector<ByteRange> checked;
    for (const FileSlab& slab : slabs) checked.push_back(slab.bytes());
    for (const StoredAsset& asset : assets) checked.push_back({asset.at, asset.num_bytes});
    double position = begin + static_cast<double>(file.block().num_bytes);
    for (const ByteRange& range : checked) position -= static_cast<double>(range.num_bytes);
    std::vector<Check> checks = {{begin, [&file, check_table, checked] {
                                      check_table();
                                      check_rest(file, checked);
                                      return std::string();
                                  }}};
    const auto add = [&](int64_t num_bytes, std::function<std::string()> find_fault) {
        checks.push_back({position + static_cast<double>(num_bytes) / 2, std::move(find_fault)});
        position += static_cast<double>(num_bytes);
    };
    for (const FileSlab& slab : slabs)
        add(slab.bytes().num_bytes, [&file, slab] { return slab_fault(file, slab); });
    for (const StoredAsset& asset : assets)
        add(asset.num_bytes, [&file, asset] { return asset_fault(file, asset); });
    return checks;
}

class FaultSearch {
  public:
    FaultSearch(Checkpoint::Files& files, const Manifest& manifest, const Parts& parts, bool* unreadable)
        : files_(files),
          manifest_(manifest),
          parts_(parts),
          unreadable_(unreadable),
          listed_(listed_slabs(manifest)) {}

    /// `begin`: the file's position among the bytes of all files.
    void check_file(int number, int64_t begin) {
        std::vector<Check> checks;
        try {
            const InputFile& file = files_.open(manifest_, number);
            const bool own = number == StoredSlab::kThisFile;
            const auto check_table = [this, &file, own, number] {
                if (manifest_.lists_slabs() && !own) check_listed(file, manifest_, listed_[number]);
            };
            checks = checks_of(file, static_cast<double>(begin), slabs_of(number),
                               own ? manifest_.assets : std::vector<StoredAsset>(), check_table);
        } catch (const std::exception& error) {
            // Every part that needs the file fails here. The part with the first byte reports the error.
            note_failure(error, unreadable_);
            if (parts_.has(static_cast<double>(begin)))
                faults_.push_back(error.what() +
                                  lost_tensors(manifest_, number, folder_of(files_.own.file().path())));
            return;
        }
        for (const Check& check : checks)
            if (parts_.has(check.middle)) run(check);
    }

    std::vector<std::string> take() { return std::move(faults_); }

  private:
    void run(const Check& check) {
        try {
            if (std::string fault = check.find_fault(); !fault.empty()) faults_.push_back(std::move(fault));
        } catch (const std::exception& error) {
            // A failed read is a fault too, because the bytes may be damaged.
            note_failure(error, unreadable_);
            faults_.push_back(error.what());
        }
    }

    std::vector<FileSlab> slabs_of(int file) {
        if (manifest_.lists_slabs()) return listed_[file];
        std::vector<FileSlab> slabs;
        if (file == StoredSlab::kThisFile) return slabs;
        for (const Checkpoint::Files::LocatedSlab& each : files_.slabs(manifest_, file)) {
            const CutTensor& tensor = manifest_.plan.tensors[each.tensor];
            slabs.push_back(
                {&tensor.info, {file, *slab_of(manifest_.plan.grid, tensor, file), each.at, each.hash}});
        }
        return slabs;
    }

    Checkpoint::Files& files_;
    const Manifest& manifest_;
    Parts parts_;
    bool* unreadable_;
    std::map<int, std::vector<FileSlab>> listed_;
    std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> Checkpoint::faults(int part, int num_parts, bool* unreadable) const {
    ARGOSY_CHECK(part >= 0 && part < num_parts, "part {} of {}", part, num_parts);
    const int64_t own_bytes = files_->own.block().num_bytes;
    Parts parts{part, num_parts, own_bytes};
    for (const StoredFile& file : manifest_.files) parts.total += file.num_bytes;
    FaultSearch search(*files_, manifest_, parts, unreadable);
    int64_t begin = 0;
    for (int file = StoredSlab::kThisFile; file < std::ssize(manifest_.files); ++file) {
        const int64_t num_bytes = file == StoredSlab::kThisFile ? own_bytes : manifest_.files[file].num_bytes;
        if (parts.has_some(begin, begin + num_bytes)) search.check_file(file, begin);
        begin += num_bytes;
    }
    return search.take();
}

std::vector<std::string> Checkpoint::file_faults(int part, int num_parts, bool* unreadable) const {
    ARGOSY_CHECK(part >= 0 && part < num_parts, "part {} of {}", part, num_parts);
    std::vector<std::string> faults;
    for (int file = part; file < std::ssize(manifest_.files); file += num_parts) {
        try {
            files_->open(manifest_, file);
        } catch (const std::exception& error) {
            note_failure(error, unreadable);
            faults.push_back(error.what() +
                             lost_tensors(manifest_, file, folder_of(files_->own.file().path())));
        }
    }
    return faults;
}

}  // namespace argosy::checkpoint
