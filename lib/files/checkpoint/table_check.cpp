// Checks of tables.
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "checkpoint/table.h"
#include "checkpoint/user_block.h"

namespace argosy::checkpoint {
namespace {

constexpr size_t kMaxDims = 32;  // HDF5's limit
constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();

bool is_control(char letter) { return static_cast<unsigned char>(letter) < ' ' || letter == 0x7f; }

/// The fault of a name; empty if the name is valid.
std::string_view name_fault(std::string_view name) {
    if (name.empty()) return "is empty";
    return std::ranges::any_of(name, is_control) ? "holds a control character" : "";
}

/// The name in printable form, for messages.
std::string printable(std::string_view name) {
    std::string text(name.substr(0, 100));
    std::ranges::replace_if(text, is_control, '?');
    return text;
}

std::string_view path_fault(std::string_view name) {
    if (const std::string_view fault = name_fault(name); !fault.empty()) return fault;
    if (name == "table" || name == "assets" || name.starts_with("assets/") || name == "elements" ||
        name.starts_with("elements/"))
        return "is reserved";
    for (size_t begin = 0; begin <= name.size();) {
        const size_t end = std::min(name.find('/', begin), name.size());
        const std::string_view part = name.substr(begin, end - begin);
        if (part.empty() || part == "." || part == "..") return "is not a path";
        begin = end + 1;
    }
    return {};
}

bool overlap(const layout::Slab& a, const layout::Slab& b) {
    for (size_t dim = 0; dim < a.size.size(); ++dim) {
        if (a.offset[dim] >= b.offset[dim] + b.size[dim] || b.offset[dim] >= a.offset[dim] + a.size[dim])
            return false;
    }
    return true;
}

/// UserError if two slabs overlap. The slabs are sorted by their begin in dim 0, so that a slab is compared
/// only with later slabs that begin before its end in dim 0.
void check_disjoint(const StoredTensor& tensor, const std::string& where) {
    std::vector<const layout::Slab*> slabs;
    for (const StoredSlab& stored : tensor.slabs) slabs.push_back(&stored.slab);
    const bool scalar = tensor.info.shape.empty();
    const auto begin = [&](const layout::Slab* slab) { return scalar ? 0 : slab->offset[0]; };
    const auto end = [&](const layout::Slab* slab) { return scalar ? 1 : slab->offset[0] + slab->size[0]; };
    std::sort(slabs.begin(), slabs.end(), [&](auto* a, auto* b) { return begin(a) < begin(b); });
    for (size_t i = 0; i < slabs.size(); ++i) {
        for (size_t j = i + 1; j < slabs.size() && begin(slabs[j]) < end(slabs[i]); ++j) {
            if (!overlap(*slabs[i], *slabs[j])) continue;
            throw UserError("{}: its slabs at {} of {} and at {} of {} overlap", where, slabs[i]->offset,
                            slabs[i]->size, slabs[j]->offset, slabs[j]->size);
        }
    }
}

void check_cover(const StoredTensor& tensor, const std::string& where) {
    check_disjoint(tensor, where);
    int64_t covered = 0;  // at most the tensor's elements, since the slabs are disjoint
    for (const StoredSlab& stored : tensor.slabs) covered += stored.slab.num_elements();
    const int64_t expected = tensor.info.num_elements();
    if (covered != expected)
        throw UserError("{}: its slabs cover {} of its {} elements", where, covered, expected);
}

/// The byte ranges in use, by file. The last entry is the file that contains the table.
class Extents {
  public:
    Extents(const std::vector<StoredFile>& files, const std::string& place, const TableFile& file)
        : files_(files), place_(place), file_bytes_(file.num_bytes), ranges_(files.size() + 1) {
        ranges_.back().push_back(file.table);
    }

    void add(int file, ByteRange range, const std::string& where) {
        const int64_t limit = file == StoredSlab::kThisFile ? file_bytes_ : files_[file].num_bytes;
        if (range.at < kUserBlockBytes || range.at > limit || range.num_bytes > limit - range.at) {
            throw UserError("{}: {} bytes at {} do not lie in a file of {}", where, range.num_bytes, range.at,
                            limit);
        }
        ranges_[file == StoredSlab::kThisFile ? files_.size() : file].push_back(range);
    }
    void check() {
        for (size_t i = 0; i < files_.size(); ++i) {
            gaps(std::move(ranges_[i]), fmt::format("{}: file '{}'", place_, files_[i].name),
                 files_[i].num_bytes);
        }
        gaps(std::move(ranges_.back()), place_, file_bytes_);
    }

  private:
    const std::vector<StoredFile>& files_;
    const std::string& place_;
    int64_t file_bytes_;
    std::vector<std::vector<ByteRange>> ranges_;
};

/// UserError if a name is also a folder of another name, because HDF5 has one object for each path.
void check_folders(const std::set<std::string_view>& names, const std::string& place) {
    for (const std::string_view name : names) {
        for (size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1)) {
            if (names.contains(name.substr(0, end)))
                throw UserError("{}: tensor '{}' lies under another tensor, '{}'", place, name,
                                name.substr(0, end));
        }
    }
}

std::string tensor_place(const std::string& place, const TensorInfo& info) {
    return fmt::format("{}: tensor '{}'", place, info.name);
}

void check_files(const Manifest& manifest, const std::string& place) {
    std::set<std::string_view> names;
    for (const StoredFile& file : manifest.files) {
        if (manifest.lists_slabs()) check_file_name(file.name, place);
        if (!names.insert(file.name).second)
            throw UserError("{}: file '{}' is listed twice", place, file.name);
        if (file.num_bytes < kUserBlockBytes) {
            throw UserError("{}: file '{}' has {} bytes, and at least {} are needed", place, file.name,
                            file.num_bytes, kUserBlockBytes);
        }
    }
}

void check_assets(const Manifest& manifest, const std::string& place, Extents& extents) {
    std::set<std::string_view> names;
    for (const StoredAsset& asset : manifest.assets) {
        check_file_name(asset.name, place);
        if (!names.insert(asset.name).second)
            throw UserError("{}: asset '{}' is listed twice", place, asset.name);
        extents.add(StoredSlab::kThisFile, {asset.at, asset.num_bytes},
                    fmt::format("{}: asset '{}'", place, asset.name));
    }
}

/// Checks that the slab is inside the tensor and has elements.
void check_slab(const TensorInfo& info, const layout::Slab& slab, const std::string& place) {
    bool inside = slab.offset.size() == info.shape.size() && slab.size.size() == info.shape.size();
    for (size_t dim = 0; inside && dim < info.shape.size(); ++dim) {
        inside = slab.offset[dim] >= 0 && slab.size[dim] >= 1 && slab.size[dim] <= info.shape[dim] &&
                 slab.offset[dim] <= info.shape[dim] - slab.size[dim];
    }
    if (!inside) {
        throw UserError("{}: a slab at {} of {} is not inside shape {}", place, slab.offset, slab.size,
                        info.shape);
    }
}

void check_slabs(const StoredTensor& tensor, int num_files, const std::string& where, Extents& extents) {
    for (const StoredSlab& stored : tensor.slabs) {
        check_slab(tensor.info, stored.slab, where);
        const bool known = num_files == 0 ? stored.file == StoredSlab::kThisFile
                                          : stored.file >= 0 && stored.file < num_files;
        if (!known) throw UserError("{}: a slab names file {} of {}", where, stored.file, num_files);
        const int64_t num_bytes = stored.slab.num_elements() * size_bytes(tensor.info.type);
        extents.add(stored.file, {stored.at, num_bytes}, where);
    }
    if (num_files == 0 && tensor.slabs.size() > 1) {
        throw UserError("{}: it has {} slabs; in a full file each tensor is whole", where,
                        tensor.slabs.size());
    }
}

}  // namespace

void check_info(const TensorInfo& info, const std::string& place) {
    if (const std::string_view fault = path_fault(info.name); !fault.empty()) {
        throw UserError("{}: the name of tensor '{}' {}", place, printable(info.name), fault);
    }
    const std::string where = tensor_place(place, info);
    if (info.shape.size() > kMaxDims)
        throw UserError("{}: {} dims; the maximum is {}", where, info.shape.size(), kMaxDims);
    // The largest factor by which the number of elements may still grow.
    int64_t left = kMaxBytes / size_bytes(info.type);
    for (const int64_t size : info.shape) {
        if (size < 0) throw UserError("{}: a dim has {} elements", where, size);
        if (size > left) throw UserError("{}: shape {} has too many bytes", where, info.shape);
        left /= std::max<int64_t>(size, 1);
    }
}

void check_file_name(const std::string& name, const std::string& place) {
    std::string_view fault = name_fault(name);
    if (fault.empty() && (name.find('/') != std::string::npos || name == "." || name == "..")) {
        fault = "is not a plain file name";
    }
    if (!fault.empty()) throw UserError("{}: the file name '{}' {}", place, printable(name), fault);
}

void check_table(const ShardTable& table, const std::string& place, const TableFile& file) {
    const std::vector<StoredFile> no_others;
    Extents extents(no_others, place, file);
    std::set<std::string_view> names;
    for (const StoredTensor& tensor : table.tensors) {
        const std::string where = tensor_place(place, tensor.info);
        check_info(tensor.info, place);
        if (!names.insert(tensor.info.name).second) throw UserError("{}: it is listed twice", where);
        check_slabs(tensor, 0, where, extents);
        if (tensor.slabs.empty() && tensor.info.num_elements() > 0)
            throw UserError("{}: its slab is not given", where);
    }
    extents.check();
}

void check_table(const Manifest& manifest, const std::string& place, const TableFile& file) {
    check_files(manifest, place);
    Extents extents(manifest.files, place, file);
    check_assets(manifest, place, extents);
    std::set<std::string_view> names;
    const auto check_named = [&](const TensorInfo& info) {
        check_info(info, place);
        if (!names.insert(info.name).second)
            throw UserError("{}: it is listed twice", tensor_place(place, info));
    };
    for (const StoredTensor& tensor : manifest.tensors) {
        const std::string where = tensor_place(place, tensor.info);
        check_named(tensor.info);
        check_slabs(tensor, static_cast<int>(manifest.files.size()), where, extents);
        check_cover(tensor, where);
    }
    extents.check();
    for (const CutTensor& tensor : manifest.plan.tensors) check_named(tensor.info);
    check_folders(names, place);
    if (manifest.lists_slabs() ? !manifest.plan.tensors.empty() : !manifest.tensors.empty())
        throw UserError("{}: it has both slabs and cuts, or cuts without a grid", place);
    if (manifest.lists_slabs()) return;
    check_plan(manifest.plan, place);
    if (manifest.plan.num_writers() != std::ssize(manifest.files)) {
        throw UserError("{}: a grid of {} has another number of writers than its {} files", place,
                        manifest.plan.grid, manifest.files.size());
    }
}

std::vector<ByteRange> gaps(std::vector<ByteRange> ranges, const std::string& place, int64_t file_bytes) {
    std::sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.at < b.at; });
    std::vector<ByteRange> between;
    int64_t end = kUserBlockBytes;
    for (const ByteRange& range : ranges) {
        if (range.num_bytes == 0) continue;
        if (range.at < end) throw UserError("{}: two ranges overlap at byte {}", place, range.at);
        if (range.at > end) between.push_back({end, range.at - end});
        end = range.at + range.num_bytes;
    }
    if (end > file_bytes)
        throw UserError("{}: it has {} bytes, and its table counts {}", place, file_bytes, end);
    if (end < file_bytes) between.push_back({end, file_bytes - end});
    return between;
}

}  // namespace argosy::checkpoint
