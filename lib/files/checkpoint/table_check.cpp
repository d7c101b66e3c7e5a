// Checks of tables.
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

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

/// The byte ranges in use in the file that contains the table.
class Extents {
  public:
    Extents(const std::string& place, const TableFile& file)
        : place_(place), file_bytes_(file.num_bytes), ranges_{file.table} {}

    void add(ByteRange range, const std::string& where) {
        if (range.at < kUserBlockBytes || range.at > file_bytes_ ||
            range.num_bytes > file_bytes_ - range.at) {
            throw UserError("{}: {} bytes at {} do not lie in a file of {}", where, range.num_bytes, range.at,
                            file_bytes_);
        }
        ranges_.push_back(range);
    }
    void check() { gaps(std::move(ranges_), place_, file_bytes_); }

  private:
    const std::string& place_;
    int64_t file_bytes_;
    std::vector<ByteRange> ranges_;
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

void check_assets(const Manifest& manifest, const std::string& place, Extents& extents) {
    std::set<std::string_view> names;
    for (const StoredAsset& asset : manifest.assets) {
        check_file_name(asset.name, place);
        if (!names.insert(asset.name).second)
            throw UserError("{}: asset '{}' is listed twice", place, asset.name);
        extents.add({asset.at, asset.num_bytes}, fmt::format("{}: asset '{}'", place, asset.name));
    }
}

/// Whether the slab is inside the tensor and has elements.
bool is_inside(const TensorInfo& info, const layout::Slab& slab) {
    bool inside = slab.offset.size() == info.shape.size() && slab.size.size() == info.shape.size();
    for (size_t dim = 0; inside && dim < info.shape.size(); ++dim) {
        inside = slab.offset[dim] >= 0 && slab.size[dim] >= 1 && slab.size[dim] <= info.shape[dim] &&
                 slab.offset[dim] <= info.shape[dim] - slab.size[dim];
    }
    return inside;
}

/// Checks the slab of a tensor, which lies in the file that contains the table. A tensor without elements has
/// none.
void check_slab(const StoredTensor& tensor, const std::string& where, Extents& extents) {
    const TensorInfo& info = tensor.info;
    if (tensor.slabs.empty() && info.num_elements() > 0) throw UserError("{}: its slab is not given", where);
    if (tensor.slabs.size() > 1) throw UserError("{}: it has {} slabs", where, tensor.slabs.size());
    for (const auto& [file, slab, at, hash] : tensor.slabs) {
        if (!is_inside(info, slab)) {
            throw UserError("{}: a slab at {} of {} is not inside shape {}", where, slab.offset, slab.size,
                            info.shape);
        }
        if (file != StoredSlab::kThisFile) throw UserError("{}: its slab names file {}", where, file);
        extents.add({at, slab.num_elements() * size_bytes(info.type)}, where);
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
    Extents extents(place, file);
    std::set<std::string_view> names;
    for (const StoredTensor& tensor : table.tensors) {
        const std::string where = tensor_place(place, tensor.info);
        check_info(tensor.info, place);
        if (!names.insert(tensor.info.name).second) throw UserError("{}: it is listed twice", where);
        check_slab(tensor, where, extents);
    }
    extents.check();
}

void check_table(const Manifest& manifest, const std::string& place, const TableFile& file) {
    for (const StoredFile& shard : manifest.files) {
        if (shard.num_bytes >= kUserBlockBytes) continue;
        throw UserError("{}: file '{}' has {} bytes, and at least {} are needed", place, shard.name,
                        shard.num_bytes, kUserBlockBytes);
    }
    Extents extents(place, file);
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
        check_slab(tensor, where, extents);
        if (!tensor.slabs.empty() && tensor.slabs[0].slab != layout::whole(tensor.info.shape))
            throw UserError("{}: its slab has {} of shape {}; in a full file each tensor is whole", where,
                            tensor.slabs[0].slab.size, tensor.info.shape);
    }
    extents.check();
    for (const CutTensor& tensor : manifest.plan.tensors) check_named(tensor.info);
    check_folders(names, place);
    if (manifest.is_full() ? !manifest.plan.tensors.empty() || !manifest.files.empty()
                           : !manifest.tensors.empty())
        throw UserError("{}: it has both slabs and cuts, or cuts or files without a grid", place);
    if (manifest.is_full()) return;
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
