// Checkpoints of random tensors in random slabs, and plain loops to compare them with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/step_folder.h"
#include "checkpoint/tensor_file.h"

namespace argosy::checkpoint {

using Random = std::mt19937_64;

/// Uniform in 0 .. limit - 1.
inline int64_t below(Random& random, int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
}

struct Sample {
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::vector<std::byte>> bytes;  // of each whole tensor

    void add(Random& random, const TensorInfo& tensor);
};

/// Returns tensors of odd shapes and of every type, including scalars and tensors without elements.
Sample random_sample(Random& random, int num_tensors);

/// Whether the cuts of a plan name sets of axes, or each is over one axis of the grid.
enum class Cuts { Plain, Joint };

/// Returns a plan with a grid of one to three axes. A dim may be cut into more parts than it has elements.
SavePlan random_plan(Random& random, const std::vector<TensorInfo>& tensors, int num_writers,
                     Cuts cuts = Cuts::Plain);
layout::Slab random_slab(Random& random, const TensorInfo& tensor);

/// The slab's bytes, copied element by element.
std::vector<std::byte> bytes_of_slab(const Sample& sample, const TensorInfo& tensor,
                                     const layout::Slab& slab);

Description sample_description(int64_t step = 7);
inline const std::vector<Asset> kSampleAssets = {{"tokenizer.json", "{\"a\": 1}\n"}, {"empty.txt", ""}};

/// Appends a slab in chunks of random size.
void append(Random& random, TensorFile& writer, size_t index, std::span<const std::byte> bytes);

/// Writes the shards of `sample` into a started step.
void write_shards(Random& random, const std::filesystem::path& partial, const Sample& sample,
                  const Hash& nonce, const SavePlan& plan);
/// Writes the complete checkpoint `folder/step-N`, described by sample_description(step). Returns its path.
std::filesystem::path write_step(Random& random, const std::filesystem::path& folder, const Sample& sample,
                                 int num_writers, int64_t step = 7, Cuts cuts = Cuts::Plain);
void write_full_file(Random& random, const std::filesystem::path& path, const Sample& sample);

std::vector<std::byte> read(const Checkpoint& checkpoint, const TensorInfo& tensor, const layout::Slab& slab);

}  // namespace argosy::checkpoint
