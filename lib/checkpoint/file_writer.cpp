#include "checkpoint/file_writer.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/failpoint.h"
#include "checkpoint/output_file.h"

namespace argosy::checkpoint {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 18;  // small enough that hashed bytes are still cached when they
                                                 // are written

void check_pieces(const std::vector<Piece>& pieces, const std::string& place) {
    std::set<std::string_view> names;
    for (const Piece& piece : pieces) {
        check_info(piece.tensor, place);
        const std::string where = fmt::format("{}: tensor '{}'", place, piece.tensor.name);
        if (piece.slab.num_elements() > 0) check_slab(piece.tensor, piece.slab, where);
        if (!names.insert(piece.tensor.name).second) throw UserError("{} is to be written twice", where);
    }
}

/// The state of a piece while it is written.
struct Slot {
    std::optional<size_t>
        listed;  // its place in the table; none: it has no elements of a tensor that has some
    int64_t at = 0, num_bytes = 0, done = 0;
    std::unique_ptr<Hasher> hasher;  // of the piece's bytes in order
};

}  // namespace

class FileWriter::State {
  public:
    State(const std::filesystem::path& path, FileKind kind, Manifest table, const std::vector<Piece>& pieces,
          const std::vector<Asset>& assets)
        : kind_(kind), table_(std::move(table)), out_(path, kind, [&](h5::File& file) {
              check_pieces(pieces, file.place());
              table_.assets = place_assets(file, assets);
              for (const Piece& piece : pieces) place_piece(file, piece);
              return table_text();
          }) {
        write_assets(out_, table_.assets, assets);
        failpoint("shard_laid_out");
    }

    void append(size_t piece, std::span<const std::byte> bytes) {
        Slot& slot = slots_.at(piece);
        const auto count = static_cast<int64_t>(bytes.size());
        ARGOSY_CHECK(count <= slot.num_bytes - slot.done, "{}: piece {} gets {} bytes after {} of {}",
                     out_.file().path().string(), piece, count, slot.done, slot.num_bytes);
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
            table_.tensors[*slot.listed].slabs.front().hash = slot.hasher->value();
            slot.hasher.reset();
        }
        count_written(count);
    }

    void finish() {
        std::vector<ByteRange> checked;
        for (const Slot& slot : slots_) {
            ARGOSY_CHECK(slot.done == slot.num_bytes, "{}: a piece got {} bytes of {}",
                         out_.file().path().string(), slot.done, slot.num_bytes);
            if (slot.num_bytes > 0) checked.push_back({slot.at, slot.num_bytes});
        }
        for (const StoredAsset& asset : table_.assets) checked.push_back({asset.at, asset.num_bytes});
        out_.finish(table_text(), std::move(checked));
        failpoint("shard_finished");
    }

  private:
    std::string table_text() const {
        return kind_ == FileKind::Shard ? to_json(ShardTable{.set = table_.set, .tensors = table_.tensors})
                                        : to_json(table_);
    }

    void place_piece(h5::File& file, const Piece& piece) {
        slots_.push_back({.num_bytes = piece.num_bytes()});
        Slot& slot = slots_.back();
        total_bytes_ += slot.num_bytes;
        if (slot.num_bytes == 0 && piece.tensor.num_elements() > 0) return;
        slot.listed = table_.tensors.size();
        slot.at = place_dataset(file, piece.tensor.name, piece.tensor.type, piece.slab.size);
        StoredTensor& stored = table_.tensors.emplace_back(StoredTensor{.info = piece.tensor});
        if (slot.num_bytes > 0) stored.slabs.push_back({.slab = piece.slab, .at = slot.at});
    }

    void count_written(int64_t count) {
        const int64_t half = (total_bytes_ + 1) / 2, before = written_bytes_.fetch_add(count);
        if (before < half && before + count >= half) failpoint("shard_half_written");
    }

    FileKind kind_;
    Manifest table_;  // a shard's table has only the set and the tensors
    std::vector<Slot> slots_;
    int64_t total_bytes_ = 0;
    std::atomic<int64_t> written_bytes_ = 0;
    OutputFile out_;  // last: its constructor lays out the file and fills the members above
};

FileWriter::FileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileWriter::FileWriter(FileWriter&&) noexcept = default;
FileWriter::~FileWriter() = default;

FileWriter FileWriter::shard(const std::filesystem::path& path, const Hash& set, std::vector<Piece> pieces) {
    return FileWriter(
        std::make_unique<State>(path, FileKind::Shard, Manifest{.set = set}, pieces, std::vector<Asset>{}));
}

FileWriter FileWriter::full(const std::filesystem::path& path, const Description& description,
                            std::vector<TensorInfo> tensors, const std::vector<Asset>& assets) {
    std::vector<Piece> pieces;
    for (TensorInfo& tensor : tensors) {
        layout::Slab slab = whole(tensor);
        pieces.push_back({.tensor = std::move(tensor), .slab = std::move(slab)});
    }
    Manifest table{.description = description};
    const std::string text = to_json(table);
    table.set = hash_of(std::as_bytes(std::span(text)));
    return FileWriter(std::make_unique<State>(path, FileKind::Full, std::move(table), pieces, assets));
}

void FileWriter::append(size_t piece, std::span<const std::byte> bytes) { state_->append(piece, bytes); }
void FileWriter::finish() { state_->finish(); }

std::string shard_name(int writer, int num_writers) {
    return fmt::format("shard-{:05}-of-{:05}.h5", writer, num_writers);
}

}  // namespace argosy::checkpoint
