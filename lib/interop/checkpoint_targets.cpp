// Conversion targets in this program's own formats: a step's folder, cut along the first dim like FSDP, and a
// full file.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/program.h"
#include "checkpoint/step_folder.h"
#include "interop/target.h"

namespace argosy::interop {
namespace {

using checkpoint::FileWriter;
using checkpoint::Piece;
using checkpoint::TensorInfo;
namespace fs = std::filesystem;

checkpoint::Hash new_set() {
    std::random_device random;
    const auto word = [&] { return static_cast<uint64_t>(random()) << 32 | random(); };
    return {word(), word()};
}

/// The part of a tensor that goes to one shard; parts are in the order of the tensor's bytes.
struct Part {
    size_t shard, piece;
    int64_t num_bytes;
};

class ShardedTarget : public Target {
  public:
    explicit ShardedTarget(const TargetRequest& request)
        : folder_(request.partial),
          description_(target_description(request)),
          set_(new_set()),
          assets_(read_assets(request.source)),
          tensors_(request.transfers.size()) {
        std::vector<std::vector<Piece>> pieces(request.num_shards);
        for (size_t i = 0; i < tensors_.size(); ++i) cut(request.transfers[i].to, pieces, tensors_[i].parts);
        const fs::path step = checkpoint::start_step(folder_, description_.step);
        for (int shard = 0; shard < request.num_shards; ++shard) {
            const std::string name = checkpoint::shard_name(shard, request.num_shards);
            shards_.push_back(FileWriter::shard(step / name, set_, std::move(pieces[shard])));
        }
    }

    void append(size_t transfer, std::span<const std::byte> bytes) override {
        Cut& tensor = tensors_[transfer];
        while (!bytes.empty()) {
            const Part& part = tensor.parts[tensor.current];
            const size_t some = std::min<size_t>(bytes.size(), part.num_bytes - tensor.done_bytes);
            shards_[part.shard].append(part.piece, bytes.first(some));
            bytes = bytes.subspan(some);
            tensor.done_bytes += static_cast<int64_t>(some);
            if (tensor.done_bytes < part.num_bytes) continue;
            ++tensor.current;
            tensor.done_bytes = 0;
        }
    }

    fs::path finish() override {
        for (FileWriter& shard : shards_) shard.finish();
        const auto num_shards = static_cast<int>(shards_.size());
        checkpoint::commit_step(folder_, description_, set_, num_shards, assets_);
        return folder_ / checkpoint::step_name(description_.step);
    }

  private:
    struct Cut {
        std::vector<Part> parts;
        size_t current = 0;
        int64_t done_bytes = 0;  // written of the current part
    };

    /// A tensor without rows (a scalar or an empty one) goes whole into the first shard.
    static void cut(const TensorInfo& tensor, std::vector<std::vector<Piece>>& pieces,
                    std::vector<Part>& parts) {
        if (tensor.shape.empty() || tensor.num_elements() == 0) {
            parts.push_back({0, pieces[0].size(), tensor.num_bytes()});
            pieces[0].push_back({tensor, checkpoint::whole(tensor)});
            return;
        }
        for (size_t shard = 0; shard < pieces.size(); ++shard) {
            Piece piece{tensor, checkpoint::whole(tensor)};
            const auto rows =
                layout::chunk(tensor.shape[0], static_cast<int>(pieces.size()), static_cast<int>(shard));
            piece.slab.offset[0] = rows.begin;
            piece.slab.size[0] = rows.size;
            if (piece.num_bytes() == 0) continue;
            parts.push_back({shard, pieces[shard].size(), piece.num_bytes()});
            pieces[shard].push_back(std::move(piece));
        }
    }

    fs::path folder_;
    checkpoint::Description description_;
    checkpoint::Hash set_;
    std::vector<checkpoint::Asset> assets_;
    std::vector<Cut> tensors_;
    std::vector<FileWriter> shards_;
};

class FullTarget : public Target {
  public:
    explicit FullTarget(const TargetRequest& request)
        : path_(request.partial),
          file_(FileWriter::full(path_, target_description(request), tensors(request),
                                 read_assets(request.source))) {}

    void append(size_t transfer, std::span<const std::byte> bytes) override { file_.append(transfer, bytes); }

    fs::path finish() override {
        file_.finish();
        return path_;
    }

  private:
    static std::vector<TensorInfo> tensors(const TargetRequest& request) {
        std::vector<TensorInfo> result;
        for (const Transfer& transfer : request.transfers) result.push_back(transfer.to);
        return result;
    }

    fs::path path_;
    FileWriter file_;
};

}  // namespace

checkpoint::Description target_description(const TargetRequest& request) {
    checkpoint::Description description = request.source.description.value_or(
        checkpoint::Description{.model_only = true, .model = request.source.config_json, .state = "{}"});
    description.program = version();
    description.model_only = description.model_only || request.content == Content::ModelOnly;
    return description;
}

std::unique_ptr<Target> make_sharded_target(const TargetRequest& request) {
    return std::make_unique<ShardedTarget>(request);
}

std::unique_ptr<Target> make_full_target(const TargetRequest& request) {
    return std::make_unique<FullTarget>(request);
}

}  // namespace argosy::interop
