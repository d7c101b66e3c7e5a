#include "checkpoint/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace argosy::checkpoint {
namespace {

constexpr std::array kTypes = {ElementType::Float32, ElementType::BFloat16, ElementType::Float64,
                               ElementType::Float16, ElementType::Int64,    ElementType::UInt32,
                               ElementType::UInt16,  ElementType::UInt8};

std::vector<int64_t> random_shape(Random& random, int index) {
    if (index == 0) return {};
    if (index == 1) return {3, 0, 2};
    if (index == 2) return {67, 1031};  // rows longer than a page
    std::vector<int64_t> shape;
    for (int64_t dim = below(random, 4); dim >= 0; --dim) shape.push_back(1 + below(random, 9));
    return shape;
}

/// A random number that divides `number`.
int divisor(Random& random, int number) {
    int found = 0;
    while (found == 0 || number % found != 0) found = 1 + static_cast<int>(below(random, number));
    return found;
}

/// The axes 0 .. count - 1, each in one of the sets, in random order; of plain cuts each axis by itself.
std::vector<std::vector<int>> random_sets(Random& random, int64_t count, Cuts cuts) {
    std::vector<std::vector<int>> sets(count);
    for (int axis = 0; axis < count; ++axis)
        sets[cuts == Cuts::Plain ? axis : below(random, count)].push_back(axis);
    std::erase_if(sets, [](const std::vector<int>& set) { return set.empty(); });
    return sets;
}

}  // namespace

void Sample::add(Random& random, const TensorInfo& tensor) {
    tensors.push_back(tensor);
    std::vector<std::byte>& content = bytes[tensor.name];
    content.resize(tensor.num_bytes());
    for (std::byte& byte : content) byte = static_cast<std::byte>(random());
}

Sample random_sample(Random& random, int num_tensors) {
    Sample sample;
    for (int i = 0; i < num_tensors; ++i) {
        const char* group = i % 3 == 0 ? "optimizer/first" : "model";
        sample.add(random, {.name = fmt::format("{}/layers.{}.weight", group, i),
                            .type = kTypes[i % kTypes.size()],
                            .shape = random_shape(random, i)});
    }
    return sample;
}

SavePlan random_plan(Random& random, const std::vector<TensorInfo>& tensors, int num_writers, Cuts cuts) {
    SavePlan plan;
    const int first = divisor(random, num_writers), second = divisor(random, num_writers / first);
    plan.grid = {first, second, num_writers / first / second};
    if (below(random, 3) == 0) plan.grid = {num_writers};
    for (const TensorInfo& tensor : tensors) {
        CutTensor& cut_tensor = plan.tensors.emplace_back(CutTensor{.info = tensor});
        for (const std::vector<int>& axes : random_sets(random, std::ssize(plan.grid), cuts)) {
            const int degree = degree_of(plan.grid, axes);
            GridCut cut{.parts = tensor.shape.empty() ? 1 : divisor(random, degree)};
            if (below(random, 2) == 0 && !tensor.shape.empty()) cut.parts = degree;
            if (!tensor.shape.empty()) cut.dim = static_cast<int>(below(random, std::ssize(tensor.shape)));
            if (below(random, 2) == 0) cut.dim = 0;
            cut.first = static_cast<int>(below(random, degree / cut.parts));
            if (cuts == Cuts::Joint) cut.axes = axes;
            cut_tensor.cuts.push_back(cut);
        }
    }
    return plan;
}

layout::Slab random_slab(Random& random, const TensorInfo& tensor) {
    layout::Slab slab = layout::whole(tensor.shape);
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
        slab.offset[dim] = below(random, tensor.shape[dim] + 1);
        slab.size[dim] = below(random, tensor.shape[dim] - slab.offset[dim] + 1);
    }
    return slab;
}

std::vector<std::byte> bytes_of_slab(const Sample& sample, const TensorInfo& tensor,
                                     const layout::Slab& slab) {
    const std::vector<std::byte>& content = sample.bytes.at(tensor.name);
    const int64_t width = size_bytes(tensor.type), count = slab.num_elements();
    std::vector<std::byte> out;
    for (int64_t i = 0; i < count; ++i) {
        int64_t left = i, element = 0, stride = 1;
        for (size_t dim = tensor.shape.size(); dim-- > 0;) {
            element += (slab.offset[dim] + left % slab.size[dim]) * stride;
            left /= slab.size[dim];
            stride *= tensor.shape[dim];
        }
        out.insert(out.end(), content.begin() + element * width, content.begin() + (element + 1) * width);
    }
    return out;
}

Description sample_description(int64_t step) {
    return {.step = step,
            .program = "0.1.0",
            .mesh = "dp_shard 8",
            .model_only = false,
            .model = R"({"model_type":"llama","hidden_size":64})",
            .config = "[training]\nsteps = 10\n# \"quoted\", \\ and caf\u00e9\n",
            .state = R"({"samples":12345678901234,"scale":0.1})"};
}

void append(Random& random, TensorFile& writer, size_t index, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const size_t count = 1 + below(random, bytes.size());
        writer.append(index, bytes.first(count));
        bytes = bytes.subspan(count);
    }
}

void write_shards(Random& random, const std::filesystem::path& partial, const Sample& sample,
                  const Hash& nonce, const SavePlan& plan) {
    for (int i = 0; i < plan.num_writers(); ++i) {
        TensorFile writer = TensorFile::shard(partial, nonce, plan, i);
        const std::vector<TensorSlab> slabs = slabs_of(plan, i);
        for (size_t j = 0; j < slabs.size(); ++j)
            append(random, writer, j, bytes_of_slab(sample, slabs[j].tensor, slabs[j].slab));
        writer.finish();
    }
}

std::filesystem::path write_step(Random& random, const std::filesystem::path& folder, const Sample& sample,
                                 int num_writers, int64_t step, Cuts cuts) {
    const Hash nonce{random(), random()};
    const SavePlan plan = random_plan(random, sample.tensors, num_writers, cuts);
    write_shards(random, start_step(folder, step, num_writers), sample, nonce, plan);
    commit_step(folder, sample_description(step), nonce, plan, kSampleAssets);
    return step_path(folder, step);
}

void write_full_file(Random& random, const std::filesystem::path& path, const Sample& sample) {
    TensorFile writer = TensorFile::full(path, sample_description(), sample.tensors, kSampleAssets);
    for (size_t i = 0; i < sample.tensors.size(); ++i) {
        append(random, writer, i, sample.bytes.at(sample.tensors[i].name));
    }
    writer.finish();
}

std::vector<std::byte> read(const Checkpoint& checkpoint, const TensorInfo& tensor,
                            const layout::Slab& slab) {
    std::vector<std::byte> out(slab.num_elements() * size_bytes(tensor.type));
    checkpoint.read(checkpoint.at(tensor.name), slab, out);
    return out;
}

}  // namespace argosy::checkpoint
