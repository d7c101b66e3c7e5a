#include "pytorch/saved_file.h"

#include <algorithm>
#include <functional>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/output.h"
#include "base/strict_json.h"
#include "pytorch/archive.h"

namespace argosy::pytorch {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorInfo;

constexpr int kMaxDepth = 64;

/// The mark with which files of torch before 1.6 begin: the pickle of a number.
constexpr std::string_view kOldMark("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
constexpr std::string_view kZipMark("PK\x03\x04", 4);

/// UserError unless torch.save wrote the file, since torch 1.6.
std::shared_ptr<const RawFile> open(const fs::path& path) {
    auto file = std::make_shared<const RawFile>(RawFile::open_to_read(path));
    const std::string first = first_bytes(path, 512);
    if (first.starts_with(kOldMark)) {
        throw UserError(
            "{} has the form that torch.save wrote before torch 1.6; write it anew: "
            "torch.save(torch.load({}, "
            "map_location=\"cpu\"), NEW)",
            path.string(), shown(path.string()));
    }
    if (first.empty()) throw DamageError("{} is truncated: it is empty", path.string());
    if (!first.starts_with(kZipMark)) {
        const std::string kind = kind_of_content(first);
        throw UserError("{} is {}; torch.save would have written a zip", path.string(),
                        kind.empty() ? "no file of torch.save" : kind);
    }
    return file;
}

std::string name_of(Value key) {
    if (const std::string* text = key.text()) return *text;
    return key.shown();
}

}  // namespace

struct SavedFile::Contents {
    Archive archive;
    std::map<std::string, StoredTensor, std::less<>> places;
    std::vector<TensorInfo> tensors;
    std::vector<OtherTensor> others;
    // Tensors and their names take memory in proportion to the pickle, though values inside may be shared.
    size_t letters_left = 0;

    explicit Contents(Archive opened)
        : archive(std::move(opened)), letters_left((1 << 20) + 64 * archive.pickle_bytes()) {
        collect(archive.root(), {}, 0);
        for (const auto& [name, place] : places) {
            if (place.type.type) {
                tensors.push_back({name, *place.type.type, place.shape});
            } else {
                others.push_back({name, place.type_name});
            }
        }
        std::ranges::stable_sort(tensors, {},
                                 [&](const TensorInfo& tensor) { return places.at(tensor.name).at; });
    }

    [[noreturn]] void refuse(std::string_view fault) const {
        throw UserError("{}: the values in its pickle {}", archive.place(), fault);
    }

    void collect(Value value, const std::string& name, int depth) {
        if (depth > kMaxDepth) refuse("are too deeply nested");
        std::optional<StoredTensor> tensor = archive.tensor_of(value);
        const size_t letters = name.size() + (tensor ? sizeof(StoredTensor) + 16 * tensor->shape.size() : 0);
        if (letters >= letters_left) refuse("refer to each other too often");
        letters_left -= letters + 1;
        if (tensor) {
            if (!places.emplace(name, std::move(*tensor)).second)
                throw UserError("{}: two tensors are called {}", archive.place(), shown(name));
            return;
        }
        const std::string prefix = depth == 0 ? "" : name + ".";
        for (const Value::Entry& entry : value.entries())
            collect(entry.value, prefix + name_of(entry.key), depth + 1);
        for (size_t i = 0; i < value.items().size(); ++i)
            collect(value.items()[i], prefix + std::to_string(i), depth + 1);
    }
};

SavedFile::SavedFile(const fs::path& path, KnownClasses more_classes) {
    const auto file = open(path);
    contents_ =
        std::make_unique<const Contents>(Archive(file, 0, file->size_bytes(), path.string(), more_classes));
}

SavedFile::SavedFile(std::shared_ptr<const RawFile> file, int64_t offset, int64_t length, std::string place,
                     KnownClasses more_classes)
    : contents_(std::make_unique<const Contents>(
          Archive(std::move(file), offset, length, std::move(place), more_classes))) {}

SavedFile::~SavedFile() = default;

Value SavedFile::root() const { return contents_->archive.root(); }
const std::vector<TensorInfo>& SavedFile::tensors() const { return contents_->tensors; }
const std::vector<OtherTensor>& SavedFile::other_tensors() const { return contents_->others; }
const std::string& SavedFile::place() const { return contents_->archive.place(); }

void SavedFile::read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const {
    if (slab.num_elements() == 0) return;
    read_elements(contents_->archive.file(), contents_->places.find(tensor.name)->second,
                  layout::whole(tensor.shape), slab, out);
}

bool is_saved_file(const fs::path& path) {
    const std::string first = first_bytes(path, kOldMark.size());
    return first.starts_with(kOldMark) || first.starts_with(kZipMark);
}

}  // namespace argosy::pytorch
