// Checkpoint::faults reads all checked bytes of a checkpoint again; file_faults only opens its files.
#include <algorithm>
#include <exception>
#include <map>

#include "base/error.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/slab_bytes.h"

namespace argosy::checkpoint {
namespace {

/// One unit of checking: a slab, an asset, or (with neither) a file's own parts: user block, table and the
/// bytes that `rest` covers.
struct Item {
    int file = StoredSlab::kThisFile;
    ByteRange bytes;
    const StoredTensor* tensor = nullptr;
    const StoredSlab* slab = nullptr;
    const StoredAsset* asset = nullptr;
};

/// All items, sorted by file and byte offset.
std::vector<Item> items_of(const Manifest& manifest, int64_t own_bytes) {
    std::vector<Item> items;
    std::map<int, int64_t> own_parts = {
        {StoredSlab::kThisFile, own_bytes}};  // bytes of a file that are in no slab
    for (size_t i = 0; i < manifest.files.size(); ++i)
        own_parts[static_cast<int>(i)] = manifest.files[i].num_bytes;
    for (const StoredTensor& tensor : manifest.tensors) {
        for (const StoredSlab& slab : tensor.slabs) {
            items.push_back({.file = slab.file,
                             .bytes = {slab.at, num_bytes(tensor, slab)},
                             .tensor = &tensor,
                             .slab = &slab});
            own_parts[slab.file] -= items.back().bytes.num_bytes;
        }
    }
    for (const StoredAsset& asset : manifest.assets) {
        items.push_back({.bytes = {asset.at, asset.num_bytes}, .asset = &asset});
        own_parts[StoredSlab::kThisFile] -= asset.num_bytes;
    }
    for (const auto& [file, count] : own_parts) items.push_back({.file = file, .bytes = {0, count}});
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
        return std::pair(a.file, a.bytes.at) < std::pair(b.file, b.bytes.at);
    });
    return items;
}

/// The items whose middle byte lies in the part.
std::vector<Item> part_of(const std::vector<Item>& items, int part, int num_parts) {
    int64_t total = 0;
    for (const Item& item : items) total += item.bytes.num_bytes;
    std::vector<Item> mine;
    int64_t before = 0;
    for (const Item& item : items) {
        const double middle = static_cast<double>(before) + static_cast<double>(item.bytes.num_bytes) / 2;
        const int its_part =
            static_cast<int>(middle / static_cast<double>(std::max<int64_t>(total, 1)) * num_parts);
        if (std::clamp(its_part, 0, num_parts - 1) == part) mine.push_back(item);
        before += item.bytes.num_bytes;
    }
    return mine;
}

/// The manifest's entries for the tensors of a shard, to compare with the shard's own table.
std::map<std::string, StoredTensor> tensors_in(const Manifest& manifest, int file) {
    std::map<std::string, StoredTensor> tensors;
    for (const StoredTensor& tensor : manifest.tensors) {
        for (const StoredSlab& slab : tensor.slabs) {
            if (slab.file != file) continue;
            StoredTensor& found = tensors[tensor.info.name];
            found.info = tensor.info;
            found.slabs.emplace_back(slab).file = StoredSlab::kThisFile;
        }
    }
    return tensors;
}

void check_own_table(const StoredBytes& shard, const Manifest& manifest, int file) {
    const ShardTable table =
        parse_shard_table(shard.table(), shard.place() + ": its table", shard.block().num_bytes);
    if (table.set != manifest.set) {
        throw UserError("{} is a foreign shard: it belongs to the save {}, and {} was expected",
                        shard.place(), table.set.hex(), manifest.set.hex());
    }
    std::map<std::string, StoredTensor> expected = tensors_in(manifest, file);
    for (const StoredTensor& tensor : table.tensors) {
        if (tensor.slabs.empty()) continue;
        const auto found = expected.find(tensor.info.name);
        if (found == expected.end() || found->second != tensor) {
            throw UserError("{}: its table says something else of tensor '{}' than the manifest",
                            shard.place(), tensor.info.name);
        }
        expected.erase(found);
    }
    if (!expected.empty()) {
        throw UserError("{}: its table lacks tensor '{}'", shard.place(), expected.begin()->first);
    }
}

void check_rest(const StoredBytes& file, const std::vector<Item>& items, int number) {
    std::vector<ByteRange> checked = {file.table_range()};
    for (const Item& item : items) {
        if (item.file == number && (item.slab || item.asset)) checked.push_back(item.bytes);
    }
    const std::vector<ByteRange> rest = gaps(std::move(checked), file.place(), file.block().num_bytes);
    const Hash found = hash_of(file.file(), rest);
    if (found != file.block().rest) {
        throw UserError(
            "{}: HDF5's own bytes (outside the tensors) are torn: they give the check {}, and {} was "
            "expected",
            file.place(), found.hex(), file.block().rest.hex());
    }
}

/// Describes the tensors that an unusable file affects: "; parts of 12 tensors lie in it, as of
/// 'model/norm.weight'".
std::string losses(const std::vector<Item>& items, int file) {
    const std::string* first = nullptr;
    int64_t count = 0;
    for (const Item& item : items) {
        if (item.file != file || !item.slab) continue;
        if (count++ == 0) first = &item.tensor->info.name;
    }
    return count == 0 ? "" : fmt::format("; parts of {} tensors lie in it, as of '{}'", count, *first);
}

std::string damage(const StoredBytes& file, const Item& item) {
    const Hash found = hash_of(file.file(), std::span(&item.bytes, 1));
    if (item.slab) return check_fault(file.file(), *item.tensor, *item.slab, found);
    if (found == item.asset->hash) return {};
    return fmt::format("{}: asset '{}' is torn: it gives the check {}, and {} was expected", file.place(),
                       item.asset->name, found.hex(), item.asset->hash.hex());
}

void note_failure(const std::exception& error, bool* unreadable) {
    if (unreadable && dynamic_cast<const RunError*>(&error)) *unreadable = true;
}

}  // namespace

std::vector<std::string> Checkpoint::faults(int part, int num_parts, bool* unreadable) const {
    ARGOSY_CHECK(part >= 0 && part < num_parts, "part {} of {}", part, num_parts);
    const std::vector<Item> items = items_of(manifest_, files_->own.block().num_bytes);
    std::vector<std::string> faults;
    const auto note = [&](const std::string& fault) {  // a fault of a whole file is reported once
        if (!fault.empty() && std::find(faults.begin(), faults.end(), fault) == faults.end())
            faults.push_back(fault);
    };
    for (const Item& item : part_of(items, part, num_parts)) {
        const StoredBytes* file = nullptr;
        try {
            file = &files_->open(manifest_.files, item.file);
            if (item.slab || item.asset) {
                note(damage(*file, item));
                continue;
            }
            if (item.file != StoredSlab::kThisFile) check_own_table(*file, manifest_, item.file);
            check_rest(*file, items, item.file);
        } catch (const std::exception& error) {  // machine failures too: unreadable bytes are not sound
            note_failure(error, unreadable);
            note(file ? std::string(error.what()) : error.what() + losses(items, item.file));
        }
    }
    return faults;
}

std::vector<std::string> Checkpoint::file_faults(int part, int num_parts, bool* unreadable) const {
    ARGOSY_CHECK(part >= 0 && part < num_parts, "part {} of {}", part, num_parts);
    std::vector<std::string> faults;
    for (int file = part; file < std::ssize(manifest_.files); file += num_parts) {
        try {
            files_->open(manifest_.files, file);
        } catch (const std::exception& error) {
            note_failure(error, unreadable);
            faults.push_back(error.what() + losses(items_of(manifest_, files_->own.block().num_bytes), file));
        }
    }
    return faults;
}

}  // namespace argosy::checkpoint
