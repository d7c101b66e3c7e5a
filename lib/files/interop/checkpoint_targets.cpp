// Conversion targets in this program's own formats: a step's folder, whose shards cut each tensor along the
// first dim like FSDP, and a full file.
#include <algorithm>
#include <map>
#include <random>

#include "base/program.h"
#include "checkpoint/step_folder.h"
#include "checkpoint/tensor_file.h"
#include "interop/target.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorFile;
using checkpoint::TensorInfo;
using checkpoint::TensorSlab;
namespace fs = std::filesystem;

checkpoint::Hash new_nonce() {
    std::random_device random;
    const auto word = [&] { return static_cast<uint64_t>(random()) << 32 | random(); };
    return {word(), word()};
}

/// The description of the checkpoint that the conversion writes.
checkpoint::Description description_of(const TargetOptions& options) {
    checkpoint::Description description = options.source.description.value_or(
        checkpoint::Description{.model_only = true, .model = options.source.config_json, .state = "{}"});
    description.program = version();
    description.model_only = description.model_only || options.content == Content::ModelOnly;
    return description;
}

/// Cuts each tensor into chunks of rows, one chunk for each shard. A scalar has no rows and goes into the
/// first shard.
checkpoint::SavePlan plan_of(const TargetOptions& options) {
    checkpoint::SavePlan plan{.grid = {options.num_shards}, .tensors = {}};
    for (const TensorConversion& conversion : options.conversions) {
        const bool has_rows = !conversion.to.shape.empty();
        plan.tensors.push_back({conversion.to, {{.parts = has_rows ? options.num_shards : 1}}});
    }
    return plan;
}

class ShardedTarget : public Target {
  public:
    explicit ShardedTarget(const TargetOptions& options)
        : folder_(options.partial),
          description_(description_of(options)),
          nonce_(new_nonce()),
          plan_(plan_of(options)),
          assets_(read_assets(options.source)),
          tensors_(options.conversions.size()) {
        std::map<std::string, size_t> numbers;
        for (size_t i = 0; i < plan_.tensors.size(); ++i) numbers[plan_.tensors[i].info.name] = i;
        const fs::path step = checkpoint::start_step(folder_, description_.step, options.num_shards);
        for (int shard = 0; shard < options.num_shards; ++shard) {
            shards_.push_back(TensorFile::shard(step, nonce_, plan_, shard));
            const std::vector<TensorSlab> slabs = checkpoint::slabs_of(plan_, shard);
            for (size_t i = 0; i < slabs.size(); ++i) {
                tensors_[numbers.at(slabs[i].tensor.name)].slabs.push_back(
                    {static_cast<size_t>(shard), i, slabs[i].num_bytes()});
            }
        }
    }

    void append(size_t conversion, const layout::Slab&, std::span<const std::byte> bytes) override {
        Tensor& tensor = tensors_[conversion];
        while (!bytes.empty()) {
            const ShardSlab& slab = tensor.slabs[tensor.current];
            const size_t some = std::min<size_t>(bytes.size(), slab.num_bytes - tensor.done_bytes);
            shards_[slab.shard].append(slab.number, bytes.first(some));
            bytes = bytes.subspan(some);
            tensor.done_bytes += static_cast<int64_t>(some);
            if (tensor.done_bytes < slab.num_bytes) continue;
            ++tensor.current;
            tensor.done_bytes = 0;
        }
    }

    fs::path finish() override {
        for (TensorFile& shard : shards_) shard.finish();
        checkpoint::commit_step(folder_, description_, nonce_, plan_, assets_);
        return folder_ / checkpoint::step_name(description_.step);
    }

  private:
    /// The slab of a tensor in one shard. `number` is its index among the shard's slabs.
    struct ShardSlab {
        size_t shard, number;
        int64_t num_bytes;
    };
    struct Tensor {
        std::vector<ShardSlab> slabs;  // in the order of the tensor's bytes
        size_t current = 0;
        int64_t done_bytes = 0;  // bytes of the current slab that are written
    };

    fs::path folder_;
    checkpoint::Description description_;
    checkpoint::Hash nonce_;
    checkpoint::SavePlan plan_;
    std::vector<checkpoint::Asset> assets_;
    std::vector<Tensor> tensors_;
    std::vector<TensorFile> shards_;
};

class FullTarget : public Target {
  public:
    explicit FullTarget(const TargetOptions& options)
        : path_(options.partial),
          file_(TensorFile::full(path_, description_of(options), tensors(options),
                                 read_assets(options.source))) {}

    void append(size_t conversion, const layout::Slab&, std::span<const std::byte> bytes) override {
        file_.append(conversion, bytes);
    }

    fs::path finish() override {
        file_.finish();
        return path_;
    }

  private:
    static std::vector<TensorInfo> tensors(const TargetOptions& options) {
        std::vector<TensorInfo> result;
        for (const TensorConversion& conversion : options.conversions) result.push_back(conversion.to);
        return result;
    }

    fs::path path_;
    TensorFile file_;
};

}  // namespace

std::unique_ptr<Target> make_sharded_target(const TargetOptions& options) {
    return std::make_unique<ShardedTarget>(options);
}

std::unique_ptr<Target> make_full_target(const TargetOptions& options) {
    return std::make_unique<FullTarget>(options);
}

}  // namespace argosy::interop
