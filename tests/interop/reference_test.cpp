// Against transformers' own files of tests/reference: its models start from Argosy's initial weights, so each
// of its tensors must be what lib/ground/layout gives under our name; and exported again the file is the
// same, byte for byte.
#include <gtest/gtest.h>

#include <cstring>

#include "h5/file.h"
#include "interop/conversions.h"
#include "layout/param_spec.h"
#include "model/units.h"
#include "support/reference.h"

namespace argosy::interop {
namespace {

class AgainstTransformers : public ::testing::TestWithParam<std::string> {
  protected:
    std::string folder() const { return testing::Reference::folder() + "/" + GetParam(); }

    uint64_t seed() const {
        int64_t seed = 0;
        const h5::File file = h5::File::open(folder() + ".h5");
        file.open_dataset("seed").read(std::as_writable_bytes(std::span(&seed, 1)));
        return static_cast<uint64_t>(seed);
    }
};

TEST_P(AgainstTransformers, EveryWeightIsFoundUnderItsName) {
    const ModelSource source = open_model(folder());
    const auto weights = contents(folder());
    size_t num_compared = 0;
    for (const auto& unit : model::unit_parameters(source.spec)) {
        for (const model::Parameter& parameter : unit) {
            const layout::ParamSpec& spec = parameter.spec;
            const layout::Slab all{std::vector<int64_t>(spec.shape.size(), 0), spec.shape};
            std::vector<float> expected(all.num_elements());
            layout::initial_values(spec, all, seed(), expected.data());
            const StoredTensorBytes& found = weights.at("model/" + spec.name);
            ASSERT_EQ(found.info.type, ElementType::Float32);
            ASSERT_EQ(found.info.shape, spec.shape);
            EXPECT_EQ(std::memcmp(found.bytes.data(), expected.data(), found.bytes.size()), 0) << spec.name;
            ++num_compared;
        }
    }
    if (has_router_biases(source.spec)) num_compared += model::router_biases(source.spec).size();
    EXPECT_EQ(num_compared, weights.size() + (source.spec.tied_embeddings ? 1 : 0));
}

TEST_P(AgainstTransformers, TheExportIsItsOwnFile) {
    const ScratchFolder scratch;
    convert_to(folder(), scratch / "sharded", {.to = Form::Sharded, .num_shards = 2});
    convert_to(scratch / "sharded", scratch / "hf", {.to = Form::HuggingFace});
    for (const char* name : {"model.safetensors", "generation_config.json"}) {
        EXPECT_EQ(read_file(scratch / "hf" / name), read_file(folder() + "/" + name)) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstTransformers, ::testing::ValuesIn(testing::Reference::names_of_all()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace argosy::interop
