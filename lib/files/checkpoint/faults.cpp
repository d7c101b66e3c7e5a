// The search for faults in a checkpoint. Checkpoint::faults reads all bytes and compares their checks;
// file_faults only opens the shards. A part of the work is every num_parts-th file.
#include <algorithm>
#include <exception>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/input_file.h"

namespace argosy::checkpoint {
namespace {

struct FileSlab {
    const TensorInfo* tensor = nullptr;
    StoredSlab stored;
    bool verified = false;
    ByteRange bytes() const { return {stored.at, stored.slab.num_elements() * size_bytes(tensor->type)}; }
};

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
    for (const CutTensor& tensor : manifest.plan.tensors) {
        if (slab_of(manifest.plan.grid, tensor, file) && count++ == 0) first = &tensor.info.name;
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

class FaultSearch {
  public:
    FaultSearch(Checkpoint::Files& files, const Manifest& manifest, bool* unreadable)
        : files_(files), manifest_(manifest), unreadable_(unreadable) {}

    void check_file(int number) {
        const InputFile* file = nullptr;
        std::vector<FileSlab> slabs;
        try {
            file = &files_.open(manifest_, number);
            slabs = slabs_of(number);
        } catch (const std::exception& error) {
            note_failure(error, unreadable_);
            faults_.push_back(error.what() + lost_tensors(manifest_, number, folder_of(files_.path)));
            return;
        }
        std::ranges::sort(slabs, {}, [](const FileSlab& slab) { return slab.stored.at; });
        const bool own = number == StoredSlab::kThisFile;
        const std::vector<StoredAsset> assets = own ? manifest_.assets : std::vector<StoredAsset>();
        note([&] {
            std::vector<ByteRange> checked;
            for (const FileSlab& slab : slabs) checked.push_back(slab.bytes());
            for (const StoredAsset& asset : assets) checked.push_back({asset.at, asset.num_bytes});
            check_rest(*file, std::move(checked));
            return std::string();
        });
        for (const FileSlab& slab : slabs) {
            if (!slab.verified) note([&] { return slab_fault(*file, slab); });
        }
        for (const StoredAsset& asset : assets) note([&] { return asset_fault(*file, asset); });
    }

    std::vector<std::string> take() { return std::move(faults_); }

  private:
    /// Notes the fault that a check returns or throws; empty: none.
    void note(const auto& find_fault) {
        try {
            if (std::string fault = find_fault(); !fault.empty()) faults_.push_back(std::move(fault));
        } catch (const std::exception& error) {
            // A failed read is a fault too, because the bytes may be damaged.
            note_failure(error, unreadable_);
            faults_.push_back(error.what());
        }
    }

    std::vector<FileSlab> slabs_of(int file) {
        std::vector<FileSlab> slabs;
        if (file == StoredSlab::kThisFile) {
            for (const auto& [info, stored] : manifest_.tensors)
                for (const StoredSlab& slab : stored) slabs.push_back({&info, slab});
            return slabs;
        }
        for (const Checkpoint::Files::LocatedSlab& each : files_.slabs(manifest_, file)) {
            const CutTensor& tensor = manifest_.plan.tensors[each.tensor];
            slabs.push_back({&tensor.info,
                             {file, *slab_of(manifest_.plan.grid, tensor, file), each.at, each.hash},
                             files_.is_verified(each)});
        }
        return slabs;
    }

    Checkpoint::Files& files_;
    const Manifest& manifest_;
    bool* unreadable_;
    std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> Checkpoint::faults(int part, int num_parts, bool* unreadable) const {
    ARGOSY_CHECK(part >= 0 && part < num_parts, "part {} of {}", part, num_parts);
    FaultSearch search(*files_, manifest_, unreadable);
    if (part == 0) search.check_file(StoredSlab::kThisFile);
    for (int file = part; file < std::ssize(manifest_.files); file += num_parts) search.check_file(file);
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
            faults.push_back(error.what() + lost_tensors(manifest_, file, folder_of(files_->path)));
        }
    }
    return faults;
}

}  // namespace argosy::checkpoint
