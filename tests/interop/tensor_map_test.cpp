#include "interop/tensor_map.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "base/error.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using layout::Slab;

/// Tensors in memory, whose elements are numbered.
class Numbers : public checkpoint::TensorSource {
  public:
    explicit Numbers(const std::vector<TensorMap::Theirs>& tensors) {
        float next = 1;
        for (const auto& [name, shape] : tensors) {
            tensors_.push_back({name, ElementType::Float32, shape});
            values[name].resize(layout::num_elements(shape));
            for (float& value : values[name]) value = next++;
        }
    }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    void read(const TensorInfo& tensor, const Slab& slab, std::span<std::byte> out) const override {
        ASSERT_EQ(slab.offset.size(), tensor.shape.size());
        ASSERT_EQ(std::ssize(out), slab.num_elements() * 4);
        elements_read += slab.num_elements();
        layout::for_each_run(slab, layout::whole(tensor.shape), slab, [&](const layout::Run& run) {
            std::memcpy(&out[run.in_b * 4], &values.at(tensor.name)[run.in_a], run.length * 4);
        });
    }
    const std::string& place() const override { return place_; }
    std::map<std::string, std::vector<float>> values;
    mutable int64_t elements_read = 0;

  private:
    std::string place_ = "numbers";
    std::vector<TensorInfo> tensors_;
};

constexpr int64_t kHeads = 3, kHeadDim = 6, kDim = 10, kLayers = 2, kCut = 4;

/// For each layer a matrix of heads whose rows are halves here and pairs there, in a stack of the layers; a
/// norm in a stack; and a matrix whose columns are in two tensors.
TensorMap example() {
    TensorMap map;
    map.theirs = {{"stack", {kLayers, kHeads * kHeadDim, kDim}},
                  {"norms", {kLayers, kDim}},
                  {"left", {5, kCut}},
                  {"right", {5, kDim - kCut}}};
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        MappedTensor heads{fmt::format("heads.{}", layer), {kHeads * kHeadDim, kDim}, {}};
        for (int64_t head = 0; head < kHeads; ++head) {
            for (int64_t half = 0; half < 2; ++half) {
                heads.pieces.push_back({.tensor = "stack",
                                        .their_row = (layer * kHeads + head) * kHeadDim + half,
                                        .their_row_step = 2,
                                        .row = head * kHeadDim + half * kHeadDim / 2,
                                        .num_rows = kHeadDim / 2,
                                        .num_columns = kDim});
            }
        }
        map.ours.push_back(heads);
        map.ours.push_back({fmt::format("norm.{}", layer),
                            {kDim},
                            {{.tensor = "norms", .their_row = layer, .num_columns = kDim}}});
    }
    map.ours.push_back({"columns",
                        {5, kDim},
                        {{.tensor = "left", .num_rows = 5, .num_columns = kCut},
                         {.tensor = "right", .num_rows = 5, .column = kCut, .num_columns = kDim - kCut}}});
    return map;
}

/// The same tensors, element by element.
std::map<std::string, std::vector<float>> expected(const Numbers& theirs) {
    std::map<std::string, std::vector<float>> ours;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        auto& heads = ours[fmt::format("heads.{}", layer)];
        for (int64_t row = 0; row < kHeads * kHeadDim; ++row) {
            const int64_t in_head = row % kHeadDim, half = kHeadDim / 2;
            const int64_t pair = in_head % half * 2 + in_head / half, head = row / kHeadDim;
            for (int64_t i = 0; i < kDim; ++i)
                heads.push_back(
                    theirs.values.at("stack")[((layer * kHeads + head) * kHeadDim + pair) * kDim + i]);
        }
        for (int64_t i = 0; i < kDim; ++i)
            ours[fmt::format("norm.{}", layer)].push_back(theirs.values.at("norms")[layer * kDim + i]);
    }
    for (int64_t row = 0; row < 5; ++row) {
        for (int64_t i = 0; i < kDim; ++i)
            ours["columns"].push_back(i < kCut ? theirs.values.at("left")[row * kCut + i]
                                               : theirs.values.at("right")[row * (kDim - kCut) + i - kCut]);
    }
    return ours;
}

Slab random_slab(const std::vector<int64_t>& shape, std::mt19937& random) {
    Slab slab;
    for (const int64_t size : shape) {
        slab.offset.push_back(std::uniform_int_distribution<int64_t>(0, size - 1)(random));
        slab.size.push_back(std::uniform_int_distribution<int64_t>(0, size - slab.offset.back())(random));
    }
    return slab;
}

std::vector<float> cut(const std::vector<float>& values, const std::vector<int64_t>& shape,
                       const Slab& slab) {
    std::vector<float> part(slab.num_elements());
    if (part.empty()) return part;
    layout::for_each_run(slab, layout::whole(shape), slab, [&](const layout::Run& run) {
        std::copy_n(values.begin() + run.in_a, run.length, part.begin() + run.in_b);
    });
    return part;
}

void expect_slabs(const checkpoint::TensorSource& source,
                  const std::map<std::string, std::vector<float>>& values) {
    std::mt19937 random(7);
    ASSERT_EQ(source.tensors().size(), values.size());
    for (const TensorInfo& tensor : source.tensors()) {
        std::vector<Slab> slabs = {layout::whole(tensor.shape)};
        for (int i = 0; i < 100; ++i) slabs.push_back(random_slab(tensor.shape, random));
        for (const Slab& slab : slabs) {
            std::vector<float> found(slab.num_elements(), -1);
            source.read(tensor, slab, std::as_writable_bytes(std::span(found)));
            ASSERT_EQ(found, cut(values.at(tensor.name), tensor.shape, slab)) << tensor.name;
        }
    }
}

TEST(TensorMap, OursAreReadFromTheirs) {
    const TensorMap map = example();
    auto theirs = std::make_unique<Numbers>(map.theirs);
    const auto values = expected(*theirs);
    expect_slabs(MappedSource(std::move(theirs), map.ours), values);
}

TEST(TensorMap, BothHalvesOfAHeadAreReadAtOnce) {
    const TensorMap map = example();
    auto theirs = std::make_unique<Numbers>(map.theirs);
    const Numbers& counted = *theirs;
    const MappedSource ours(std::move(theirs), map.ours);
    const TensorInfo& heads = ours.at("heads.1");
    std::vector<float> found(heads.num_elements());
    ours.read(heads, layout::whole(heads.shape), std::as_writable_bytes(std::span(found)));
    EXPECT_EQ(counted.elements_read, heads.num_elements());
}

/// A writer of theirs that gets ours in consecutive slabs.
TEST(TensorMap, RunsOfASlabInTheirs) {
    const TensorMap map = example();
    const Numbers theirs(map.theirs);
    const auto ours = expected(theirs);
    for (const int64_t max_elements : {1, 3, 10, 47, 1000}) {
        std::map<std::string, std::vector<float>> written;
        std::map<std::string, std::vector<int64_t>> shapes;
        for (const auto& [name, shape] : map.theirs) {
            written[name].resize(layout::num_elements(shape), -1);
            shapes[name] = shape;
        }
        for (const MappedTensor& tensor : map.ours) {
            for (const Slab& slab : layout::consecutive_slabs(tensor.shape, max_elements)) {
                const std::vector<float> some = cut(ours.at(tensor.name), tensor.shape, slab);
                for_each_part(tensor, slab, [&](const Part& part) {
                    for_each_run(part, shapes[part.piece->tensor], [&](const layout::Run& run) {
                        std::copy_n(some.begin() + run.in_b, run.length,
                                    written[part.piece->tensor].begin() + run.in_a);
                    });
                });
            }
        }
        EXPECT_EQ(written, theirs.values) << max_elements;
    }
}

TEST(TensorMap, PiecesThatDoNotCoverATensorAreAnError) {
    TensorMap map = example();
    map.ours[0].pieces.pop_back();
    EXPECT_THROW(MappedSource(std::make_unique<Numbers>(map.theirs), map.ours), RunError);
}

TEST(TensorMap, OptionalTensorsAreLeftOut) {
    TensorMap map = example();
    const auto theirs = map.theirs;
    map.add("more", "theirs.more", {3}, /*optional=*/true);
    EXPECT_EQ(MappedSource(std::make_unique<Numbers>(theirs), map.ours).find("more"), nullptr);
    EXPECT_NE(MappedSource(std::make_unique<Numbers>(map.theirs), map.ours).find("more"), nullptr);
}

}  // namespace
}  // namespace argosy::interop
