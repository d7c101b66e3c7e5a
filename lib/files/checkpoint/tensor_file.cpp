#include "checkpoint/tensor_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/failpoint.h"
#include "checkpoint/output_file.h"
#include "checkpoint/save_plan.h"

namespace argosy::checkpoint {
namespace {

// Small enough that bytes are still in the processor's cache when they are written after hashing.
constexpr size_t kChunkBytes = size_t{1} << 18;

void check_names(const std::vector<TensorSlab>& slabs, const std::string& place) {
    std::set<std::string_view> names;
    for (const TensorSlab& slab : slabs) {
        check_info(slab.tensor, place);
        if (!names.insert(slab.tensor.name).second)
            throw UserError("{}: tensor '{}' is listed twice", place, slab.tensor.name);
    }
}

/// Makes the datasets of a shard, one for each element type. Returns the offset of each slab in the file.
std::vector<int64_t> place_elements(h5::File& file, const SavePlan& plan, int writer) {
    const ElementLayout elements = element_layout(plan);
    std::map<ElementType, int64_t> starts;
    for (const auto& [type, num_elements] : elements.num_elements) {
        if (num_elements[writer] == 0) continue;
        starts[type] = place_dataset(file, elements_name(type), type, std::array{num_elements[writer]});
    }
    std::vector<int64_t> places;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
        const CutTensor& tensor = plan.tensors[i];
        if (!slab_of(plan.grid, tensor, writer)) continue;
        places.push_back(starts.at(tensor.info.type) + elements.begin[i] * size_bytes(tensor.info.type));
    }
    return places;
}

std::vector<int64_t> place_tensors(h5::File& file, const std::vector<TensorSlab>& slabs) {
    std::vector<int64_t> places;
    for (const TensorSlab& slab : slabs)
        places.push_back(place_dataset(file, slab.tensor.name, slab.tensor.type, slab.slab.size));
    return places;
}

/// The state of a slab while it is written.
struct Slot {
    int64_t at = 0, num_bytes = 0, done = 0;
    std::unique_ptr<Hasher> hasher;  // of the slab's bytes in order
};

}  // namespace

class TensorFile::State {
  public:
    /// Makes the datasets of the slabs and returns the offset of each in the file.
    using PlaceSlabs = std::function<std::vector<int64_t>(h5::File&)>;

    State(const std::filesystem::path& path, FileKind kind, Manifest table,
          const std::vector<TensorSlab>& slabs, const PlaceSlabs& place_slabs,
          const std::vector<Asset>& assets)
        : kind_(kind), table_(std::move(table)), out_(path, kind, [&](h5::File& file) {
              check_names(slabs, file.place());
              if (kind == FileKind::Full) describe(file, kind, kFormat, table_.description);
              table_.assets = place_assets(file, assets);
              const std::vector<int64_t> places = place_slabs(file);
              for (size_t i = 0; i < slabs.size(); ++i) list(slabs[i], places[i]);
              return table_text();
          }) {
        write_assets(out_, table_.assets, assets);
        failpoint("shard_laid_out");
    }

    void append(size_t slab, std::span<const std::byte> bytes) {
        Slot& slot = slots_.at(slab);
        const auto count = static_cast<int64_t>(bytes.size());
        ARGOSY_CHECK(count <= slot.num_bytes - slot.done, "{}: slab {} gets {} bytes after {} of {}",
                     out_.file().path().string(), slab, count, slot.done, slot.num_bytes);
        if (count == 0) return;
        if (!slot.hasher) slot.hasher = std::make_unique<Hasher>();
        const int64_t begin = slot.at + slot.done;
        while (!bytes.empty()) {
            const auto chunk = bytes.first(std::min(bytes.size(), kChunkBytes));
            slot.hasher->add(chunk);
            out_.file().write_at(slot.at + slot.done, chunk);
            slot.done += static_cast<int64_t>(chunk.size());
            bytes = bytes.subspan(chunk.size());
        }
        out_.file().begin_sync(begin, count);
        if (slot.done == slot.num_bytes) {
            table_.tensors[slab].slabs.front().hash = slot.hasher->value();
            slot.hasher.reset();
        }
        count_written(count);
    }

    void finish() {
        std::vector<ByteRange> checked;
        for (const Slot& slot : slots_) {
            ARGOSY_CHECK(slot.done == slot.num_bytes, "{}: a slab got {} bytes of {}",
                         out_.file().path().string(), slot.done, slot.num_bytes);
            if (slot.num_bytes > 0) checked.push_back({slot.at, slot.num_bytes});
        }
        for (const StoredAsset& asset : table_.assets) checked.push_back({asset.at, asset.num_bytes});
        out_.finish(table_text(), std::move(checked),
                    kind_ == FileKind::Shard ? std::optional(table_.set) : std::nullopt);
        failpoint("shard_finished");
    }

  private:
    std::string table_text() const {
        return kind_ == FileKind::Shard ? to_json(ShardTable{.set = table_.set, .tensors = table_.tensors})
                                        : to_json(table_);
    }

    void list(const TensorSlab& slab, int64_t at) {
        slots_.push_back({.at = at, .num_bytes = slab.num_bytes()});
        total_bytes_ += slab.num_bytes();
        StoredTensor& stored = table_.tensors.emplace_back(StoredTensor{.info = slab.tensor});
        if (slab.num_bytes() > 0) stored.slabs.push_back({.slab = slab.slab, .at = at});
    }

    void count_written(int64_t count) {
        const int64_t half = (total_bytes_ + 1) / 2, before = written_bytes_.fetch_add(count);
        if (before < half && before + count >= half) failpoint("shard_half_written");
    }

    FileKind kind_;
    Manifest table_;  // of a shard, only the set and the tensors
    std::vector<Slot> slots_;
    int64_t total_bytes_ = 0;
    std::atomic<int64_t> written_bytes_ = 0;
    OutputFile out_;  // last: its constructor lays out the file and fills the members above
};

TensorFile::TensorFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile::~TensorFile() = default;

TensorFile TensorFile::shard(const std::filesystem::path& step, const Hash& nonce, const SavePlan& plan,
                             int writer) {
    const int num_writers = plan.num_writers();
    const std::filesystem::path path = step / shard_name(writer, num_writers);
    ARGOSY_CHECK(writer >= 0 && writer < num_writers, "writer {} of {}", writer, num_writers);
    for (const CutTensor& tensor : plan.tensors) check_info(tensor.info, path.string());
    check_plan(plan, path.string());
    const auto place = [&](h5::File& file) { return place_elements(file, plan, writer); };
    return TensorFile(std::make_unique<State>(path, FileKind::Shard, Manifest{.set = set_of(nonce, plan)},
                                              slabs_of(plan, writer), place, std::vector<Asset>{}));
}

TensorFile TensorFile::full(const std::filesystem::path& path, const Description& description,
                            std::vector<TensorInfo> tensors, const std::vector<Asset>& assets) {
    std::vector<TensorSlab> slabs;
    for (TensorInfo& tensor : tensors) {
        layout::Slab whole = layout::whole(tensor.shape);
        slabs.push_back({.tensor = std::move(tensor), .slab = std::move(whole)});
    }
    Manifest table{.description = description};
    const std::string text = to_json(table);
    table.set = hash_of(text);
    const auto place = [&](h5::File& file) { return place_tensors(file, slabs); };
    return TensorFile(std::make_unique<State>(path, FileKind::Full, std::move(table), slabs, place, assets));
}

void TensorFile::append(size_t slab, std::span<const std::byte> bytes) { state_->append(slab, bytes); }
void TensorFile::finish() { state_->finish(); }

}  // namespace argosy::checkpoint
