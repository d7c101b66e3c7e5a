#include "pytorch/distributed_checkpoint_writer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/raw_file.h"
#include "pytorch/archive.h"
#include "pytorch/pickle_writer.h"
#include "pytorch/zip_writer.h"

namespace argosy::pytorch {
namespace {

using checkpoint::TensorInfo;

/// The frame of a save of torch.save: of a tensor's bytes, if there are any.
ZipFrame frame_save(std::string pickle, const std::optional<LastEntry>& data) {
    const std::array<std::pair<std::string, std::string>, 3> small = {{
        {"archive/data.pkl", std::move(pickle)},
        {"archive/byteorder", "little"},
        {"archive/version", "3\n"},
    }};
    return frame_zip(small, data);
}

/// A pickle that rebuilds a tensor from the storage "0".
std::string tensor_pickle(const TensorInfo& tensor) {
    const std::string_view storage =
        storage_of_torch(tensor.type);  // empty for types that are newer than storages
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    for (size_t dim = strides.size(); dim-- > 1;)
        strides[dim - 1] = strides[dim] * std::max<int64_t>(tensor.shape[dim], 1);
    PickleWriter pickle;
    pickle.global(storage.empty() ? "torch._utils._rebuild_tensor_v3" : "torch._utils._rebuild_tensor_v2");
    pickle.begin_tuple().begin_tuple().text("storage");
    pickle.global(storage.empty() ? "torch.storage.UntypedStorage" : storage).text("0").text("cpu");
    pickle.integer(storage.empty() ? tensor.num_bytes() : tensor.num_elements()).end_tuple().persistent_id();
    pickle.integer(0).begin_tuple();
    for (const int64_t size : tensor.shape) pickle.integer(size);
    pickle.end_tuple().begin_tuple();
    for (const int64_t stride : strides) pickle.integer(stride);
    pickle.end_tuple().boolean(false).global("collections.OrderedDict").begin_tuple().end_tuple().call();
    if (storage.empty()) pickle.global(name_of_torch(tensor.type));
    return pickle.end_tuple().call().finish();
}

/// The checksum of bytes that are written in any order.
class Checksum {
  public:
    void add(int64_t from, std::span<const std::byte> bytes) {
        const uint32_t crc =
            static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
        const std::lock_guard lock(mutex_);
        join(from, {std::ssize(bytes), crc});
    }
    /// REQUIRES: all bytes were added.
    uint32_t value(int64_t num_bytes) const {
        const Run run = runs_.empty() ? Run{} : runs_.begin()->second;
        ARGOSY_CHECK(runs_.size() <= 1 && run.num_bytes == num_bytes);
        return run.crc;
    }

  private:
    struct Run {
        int64_t num_bytes = 0;
        uint32_t crc = 0;
        Run then(const Run& next) const {
            const auto joined = crc32_combine(crc, next.crc, static_cast<z_off_t>(next.num_bytes));
            return {num_bytes + next.num_bytes, static_cast<uint32_t>(joined)};
        }
    };

    /// Joins a run with those that it touches.
    void join(int64_t from, Run run) {
        auto next = runs_.lower_bound(from);
        if (next != runs_.end() && next->first == from + run.num_bytes) {
            run = run.then(next->second);
            next = runs_.erase(next);
        }
        if (next != runs_.begin()) {
            auto& [first, before] = *std::prev(next);
            if (first + before.num_bytes == from) {
                before = before.then(run);
                return;
            }
        }
        runs_.emplace_hint(next, from, run);
    }

    std::mutex mutex_;
    std::map<int64_t, Run> runs_;  // by their first byte, with gaps between them
};

struct Item {
    std::string key;
    size_t file = 0;
    int64_t offset = 0, length = 0;
};

void put_tensor_metadata(PickleWriter& pickle, const TensorInfo& tensor) {
    const std::vector<int64_t> origin(tensor.shape.size(), 0);
    const std::string module = "torch.distributed.checkpoint.metadata.";
    pickle.begin_object(module + "TensorStorageMetadata").begin_dict().text("properties");
    pickle.begin_object(module + "TensorProperties").begin_tuple().global(name_of_torch(tensor.type));
    pickle.global("torch.serialization._get_layout").begin_tuple().text("torch.strided").end_tuple().call();
    pickle.boolean(false).global(module + "_MEM_FORMAT_ENCODING").begin_tuple().integer(0).end_tuple().call();
    pickle.boolean(false).end_tuple().end_object();
    pickle.text("size").size(tensor.shape).text("chunks").begin_list();
    pickle.begin_object(module + "ChunkStorageMetadata").begin_dict();
    pickle.text("offsets").size(origin).text("sizes").size(tensor.shape).end_dict().end_object();
    pickle.end_list().end_dict().end_object();
}

std::string file_name(size_t index) { return fmt::format("__0_{}.distcp", index); }

void put_item(PickleWriter& pickle, const Item& item, const std::vector<int64_t>* origin) {
    pickle.begin_object("torch.distributed.checkpoint.metadata.MetadataIndex").begin_dict();
    pickle.text("fqn").text(item.key).text("offset");
    origin ? pickle.size(*origin) : pickle.none();
    pickle.text("index");
    origin ? pickle.integer(0) : pickle.none();
    pickle.end_dict().end_object();
    pickle.begin_object("torch.distributed.checkpoint.filesystem._StorageInfo").begin_dict();
    pickle.text("relative_path").text(file_name(item.file)).text("offset").integer(item.offset);
    pickle.text("length").integer(item.length).end_dict().end_object();
}

}  // namespace

struct DistributedCheckpointWriter::Contents {
    struct Tensor {
        Item item;
        ZipFrame frame;
        std::unique_ptr<Checksum> checksum = std::make_unique<Checksum>();
        int64_t data_at() const { return item.offset + std::ssize(frame.head); }
    };
    Options options;
    std::vector<RawFile> files;
    std::vector<int64_t> file_bytes;
    std::vector<Tensor> tensors;
    std::vector<Item> objects;

    explicit Contents(Options given) : options(std::move(given)) {
        for (const auto& [key, object] : options.objects) {
            const ZipFrame frame = frame_save(PickleWriter().object(object).finish(), std::nullopt);
            const std::string bytes = frame.head + frame.tail;
            objects.push_back(place(key, std::ssize(bytes)));
            files[objects.back().file].write_at(objects.back().offset, std::as_bytes(std::span(bytes)));
        }
        for (const TensorInfo& tensor : options.tensors) {
            ZipFrame frame = frame_of(tensor, 0);
            const auto frame_bytes = static_cast<int64_t>(frame.head.size() + frame.tail.size());
            const Item item = place(tensor.name, frame_bytes + tensor.num_bytes());
            tensors.push_back({.item = item, .frame = std::move(frame)});
        }
    }

    static ZipFrame frame_of(const TensorInfo& tensor, uint32_t crc) {
        return frame_save(tensor_pickle(tensor), LastEntry{"archive/data/0", tensor.num_bytes(), crc});
    }

    Item place(const std::string& key, int64_t length) {
        if (files.empty() || (file_bytes.back() > 0 && file_bytes.back() + length > options.max_file_bytes)) {
            files.push_back(RawFile::create(options.folder / file_name(files.size())));
            file_bytes.push_back(0);
        }
        const Item item{key, files.size() - 1, file_bytes.back(), length};
        file_bytes.back() += length;
        return item;
    }

    std::string metadata() const {
        PickleWriter pickle;
        pickle.begin_object("torch.distributed.checkpoint.metadata.Metadata").begin_dict();
        pickle.text("state_dict_metadata").begin_dict();
        for (const TensorInfo& tensor : options.tensors)
            put_tensor_metadata(pickle.text(tensor.name), tensor);
        for (const Item& item : objects) {
            pickle.text(item.key).begin_object("torch.distributed.checkpoint.metadata.BytesStorageMetadata");
            pickle.begin_dict().end_dict().end_object();
        }
        pickle.end_dict().text("planner_data").begin_dict();
        const auto put_path = [&](const std::string& key) {
            pickle.text(key).begin_tuple().text(key).end_tuple();
        };
        for (const TensorInfo& tensor : options.tensors) put_path(tensor.name);
        for (const Item& item : objects) put_path(item.key);
        pickle.end_dict().text("storage_data").begin_dict();
        for (size_t i = 0; i < tensors.size(); ++i) {
            const std::vector<int64_t> origin(options.tensors[i].shape.size(), 0);
            put_item(pickle, tensors[i].item, &origin);
        }
        for (const Item& item : objects) put_item(pickle, item, nullptr);
        pickle.end_dict().text("storage_meta").none().text("version").text("1.0.0");
        return pickle.end_dict().end_object().finish();
    }
};

DistributedCheckpointWriter::DistributedCheckpointWriter(Options options)
    : contents_(std::make_unique<Contents>(std::move(options))) {}
DistributedCheckpointWriter::~DistributedCheckpointWriter() = default;

void DistributedCheckpointWriter::write(size_t index, int64_t from, std::span<const std::byte> bytes) {
    const Contents::Tensor& tensor = contents_->tensors[index];
    const RawFile& file = contents_->files[tensor.item.file];
    file.write_at(tensor.data_at() + from, bytes);
    file.begin_sync(tensor.data_at() + from, std::ssize(bytes));
    tensor.checksum->add(from, bytes);
}

void DistributedCheckpointWriter::finish() {
    for (size_t i = 0; i < contents_->tensors.size(); ++i) {
        const TensorInfo& info = contents_->options.tensors[i];
        const Contents::Tensor& tensor = contents_->tensors[i];
        const ZipFrame frame = Contents::frame_of(info, tensor.checksum->value(info.num_bytes()));
        const RawFile& file = contents_->files[tensor.item.file];
        file.write_at(tensor.item.offset, std::as_bytes(std::span(frame.head)));
        file.write_at(tensor.data_at() + info.num_bytes(), std::as_bytes(std::span(frame.tail)));
    }
    for (const RawFile& file : contents_->files) file.sync();
    write_text(contents_->options.folder / ".metadata", contents_->metadata());
    sync_folder(contents_->options.folder);
}

}  // namespace argosy::pytorch
