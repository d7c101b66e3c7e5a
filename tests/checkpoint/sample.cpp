#include "checkpoint/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace argosy::checkpoint {
namespace {

constexpr std::array kTypes = {h5::ElementType::F32, h5::ElementType::BF16, h5::ElementType::F64,
                               h5::ElementType::F16, h5::ElementType::I64,  h5::ElementType::U32,
                               h5::ElementType::U16, h5::ElementType::U8};

std::vector<int64_t> random_shape(Random& random, int index) {
    if (index == 0) return {};
    if (index == 1) return {3, 0, 2};
    if (index == 2) return {67, 1031};  // rows longer than a page
    std::vector<int64_t> shape;
    for (int64_t dim = below(random, 4); dim >= 0; --dim) shape.push_back(1 + below(random, 9));
    return shape;
}

layout::Slab cut_in_two(Random& random, layout::Slab& slab, size_t dim) {
    layout::Slab second = slab;
    const int64_t first_size = 1 + below(random, slab.size[dim] - 1);
    slab.size[dim] = first_size;
    second.offset[dim] += first_size;
    second.size[dim] -= first_size;
    return second;
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

std::vector<layout::Slab> random_partition(Random& random, const TensorInfo& tensor, int64_t max_pieces) {
    std::vector<layout::Slab> slabs = {whole(tensor)};
    if (tensor.num_elements() == 0) return slabs;
    const int64_t wanted = 1 + below(random, max_pieces);
    for (int attempt = 0;
         attempt < 20 && static_cast<int64_t>(slabs.size()) < wanted && !tensor.shape.empty(); ++attempt) {
        layout::Slab& slab = slabs[below(random, slabs.size())];
        const size_t dim = below(random, tensor.shape.size());
        if (slab.size[dim] > 1) slabs.push_back(cut_in_two(random, slab, dim));
    }
    return slabs;
}

layout::Slab random_slab(Random& random, const TensorInfo& tensor) {
    layout::Slab slab = whole(tensor);
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
        slab.offset[dim] = below(random, tensor.shape[dim] + 1);
        slab.size[dim] = below(random, tensor.shape[dim] - slab.offset[dim] + 1);
    }
    return slab;
}

std::vector<std::byte> cut(const Sample& sample, const TensorInfo& tensor, const layout::Slab& slab) {
    const std::vector<std::byte>& content = sample.bytes.at(tensor.name);
    const int64_t width = h5::size_bytes(tensor.type), count = slab.num_elements();
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

void append(Random& random, FileWriter& writer, size_t index, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const size_t count = 1 + below(random, bytes.size());
        writer.append(index, bytes.first(count));
        bytes = bytes.subspan(count);
    }
}

void write_shards(Random& random, const std::filesystem::path& partial, const Sample& sample, const Hash& set,
                  int num_writers) {
    std::vector<std::vector<Piece>> pieces(num_writers);
    for (const TensorInfo& tensor : sample.tensors) {
        std::vector<int> writers(num_writers);
        for (int i = 0; i < num_writers; ++i) writers[i] = i;
        std::shuffle(writers.begin(), writers.end(), random);
        const std::vector<layout::Slab> slabs = random_partition(random, tensor, num_writers);
        for (size_t i = 0; i < slabs.size(); ++i) pieces[writers[i]].push_back({tensor, slabs[i]});
        if (slabs.size() < writers.size()) {  // a rank whose share is empty
            layout::Slab nothing = whole(tensor);
            if (!nothing.size.empty()) nothing.size[0] = 0;
            if (!nothing.size.empty()) pieces[writers.back()].push_back({tensor, nothing});
        }
    }
    for (int i = 0; i < num_writers; ++i) {
        FileWriter writer = FileWriter::shard(partial / shard_name(i, num_writers), set, pieces[i]);
        for (size_t j = 0; j < pieces[i].size(); ++j) {
            append(random, writer, j, cut(sample, pieces[i][j].tensor, pieces[i][j].slab));
        }
        writer.finish();
    }
}

std::filesystem::path write_step(Random& random, const std::filesystem::path& folder, const Sample& sample,
                                 int num_writers, int64_t step) {
    const Hash set{random(), random()};
    write_shards(random, start_step(folder, step), sample, set, num_writers);
    commit_step(folder, sample_description(step), set, num_writers, kSampleAssets);
    return step_path(folder, step);
}

void write_full(Random& random, const std::filesystem::path& path, const Sample& sample) {
    FileWriter writer = FileWriter::full(path, sample_description(), sample.tensors, kSampleAssets);
    for (size_t i = 0; i < sample.tensors.size(); ++i) {
        append(random, writer, i, sample.bytes.at(sample.tensors[i].name));
    }
    writer.finish();
}

std::vector<std::byte> read(const Checkpoint& checkpoint, const TensorInfo& tensor,
                            const layout::Slab& slab) {
    std::vector<std::byte> out(slab.num_elements() * h5::size_bytes(tensor.type));
    checkpoint.read(checkpoint.at(tensor.name), slab, out);
    return out;
}

}  // namespace argosy::checkpoint
