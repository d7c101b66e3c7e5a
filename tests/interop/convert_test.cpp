// Conversions between all forms, bit for bit, and what ends them.
#include "interop/convert.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/tensor_file.h"
#include "expect_error.h"
#include "h5/element_type.h"
#include "interop/conversions.h"
#include "interop/inspect.h"
#include "interop/names.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;

class EveryModel : public ::testing::TestWithParam<std::string> {
  protected:
    model::ModelSpec spec() const { return tiny_spec(GetParam()); }
    ScratchFolder folder_;
};

/// The weights alone.
auto weights(std::map<std::string, StoredTensorBytes> all) {
    std::erase_if(all, [](const auto& entry) { return !entry.first.starts_with(kModelPrefix); });
    return all;
}

TEST_P(EveryModel, FromHuggingFaceThroughEveryFormAndBack) {
    const bool all = GetParam() == "llama";
    for (const ElementType type :
         {ElementType::Float32, ElementType::BFloat16, ElementType::Float16, ElementType::Float64}) {
        if (!all && type != ElementType::BFloat16) continue;
        const std::string name = h5::name(type);
        const auto path = [&](const char* form) { return folder_ / (name + form); };
        write_hugging_face(path("first"), spec(), type);
        convert_to(path("first"), path("sharded"), {.to = Form::Sharded, .num_shards = 3});
        convert_to(path("sharded"), path("full"), {.to = Form::Full});
        convert_to(path("full"), path("last"), {.to = Form::HuggingFace});
        EXPECT_EQ(read_file(path("last") / "model.safetensors"),
                  read_file(path("first") / "model.safetensors"));
        EXPECT_EQ(read_file(path("last") / "tokenizer.json"), read_file(path("first") / "tokenizer.json"));
        EXPECT_EQ(model::read_hugging_face_config(path("last")), spec());
        EXPECT_EQ(contents(path("sharded")), contents(path("full")));
        EXPECT_EQ(open_model(path("sharded")).checkpoint->manifest().files.size(), 3u);
        EXPECT_TRUE(open_model(path("full")).description->model_only);
        // The whole path, and shortcuts of it, say the same.
        convert_to(path("first"), path("direct"), {.to = Form::HuggingFace});
        EXPECT_EQ(read_file(path("direct") / "model.safetensors"),
                  read_file(path("first") / "model.safetensors"));
    }
}

TEST_P(EveryModel, ARunsStepKeepsEverythingWhateverItsShards) {
    write_step(folder_ / "run", spec());
    const auto expected = contents(folder_ / "run");
    for (const auto& tensor : tiny_tensors(spec(), ElementType::Float32, true)) {
        EXPECT_EQ(expected.at(tensor.name).bytes, tensor_bytes(tensor)) << tensor.name;
    }
    const checkpoint::Description before = *open_model(folder_ / "run").description;
    fs::path from = folder_ / "run";
    for (const int num_shards : {2, 7, 40}) {  // 40: more than most tensors have rows
        const fs::path to = folder_ / ("shards" + std::to_string(num_shards));
        convert_to(from, to, {.to = Form::Sharded, .num_shards = num_shards});
        EXPECT_EQ(contents(to), expected);
        const ModelSource source = open_model(to);
        EXPECT_EQ(source.checkpoint->manifest().files.size(), static_cast<size_t>(num_shards));
        checkpoint::Description after = *source.description;
        EXPECT_NE(after.program, before.program);
        after.program = before.program;
        EXPECT_EQ(after, before);
        EXPECT_EQ(read_assets(source).at(0).bytes, "{\"a\": 1}\n");
        EXPECT_EQ(faults(*source.checkpoint, 2), std::vector<std::string>{});
        from = to;
    }
    convert_to(from, folder_ / "full", {.to = Form::Full});
    EXPECT_EQ(contents(folder_ / "full"), expected);
    convert_to(folder_ / "full", folder_ / "again", {.to = Form::Sharded});
    EXPECT_EQ(contents(folder_ / "again"), expected);
    EXPECT_EQ(open_model(folder_ / "again").checkpoint->manifest().files.size(), 1u);
    convert_to(folder_ / "full", folder_ / "light", {.to = Form::Full, .content = Content::ModelOnly});
    EXPECT_EQ(contents(folder_ / "light"), weights(expected));
    EXPECT_TRUE(open_model(folder_ / "light").description->model_only);
    convert_to(folder_ / "run", folder_ / "hf", {.to = Form::HuggingFace});
    EXPECT_EQ(contents(folder_ / "hf"), weights(expected));
    EXPECT_EQ(read_file(folder_ / "hf" / "tokenizer.json"), "{\"a\": 1}\n");
}

/// A full file with tensors beside the weights that have no first dim to cut, or nothing to cut.
TEST(Convert, TensorsWithoutRowsGoThroughEveryForm) {
    const ScratchFolder folder;
    write_hugging_face(folder / "hf", tiny_spec("llama"));
    auto tensors = tiny_tensors(tiny_spec("llama"), ElementType::Float32, /*optimizer=*/false);
    const std::vector<checkpoint::TensorInfo> odd = {{"optimizer/number", ElementType::Float64, {}},
                                                     {"optimizer/nothing", ElementType::Int64, {0}},
                                                     {"optimizer/thin", ElementType::Float32, {3, 0, 2}},
                                                     {"optimizer/single", ElementType::UInt8, {1}}};
    tensors.insert(tensors.begin() + 2, odd.begin(), odd.end());
    checkpoint::Description description{.step = 3, .model = read_file(folder / "hf" / "config.json")};
    description.state = "{}";
    auto writer = checkpoint::TensorFile::full(folder / "first", description, tensors, {});
    for (size_t i = 0; i < tensors.size(); ++i) writer.append(i, tensor_bytes(tensors[i]));
    writer.finish();

    const auto expected = contents(folder / "first");
    ASSERT_EQ(expected.size(), tensors.size());
    fs::path from = folder / "first";
    for (const int num_shards : {1, 3, 50}) {
        const fs::path to = folder / ("shards" + std::to_string(num_shards));
        const ConvertOptions options{.to = Form::Sharded, .num_shards = num_shards};
        convert_to(from, to, options);
        EXPECT_EQ(contents(to), expected);
        const ModelSource source = open_model(from), made = open_model(to);
        EXPECT_EQ(differences(source, made, plan(source, options), {.num_threads = 2}),
                  std::vector<std::string>{});
        EXPECT_EQ(faults(*made.checkpoint, 2), std::vector<std::string>{});
        EXPECT_NE(inspection_text({.source = made}).find("[3, 0, 2]"), std::string::npos);
        from = to;
    }
    convert_to(from, folder / "last", {.to = Form::Full});
    EXPECT_EQ(contents(folder / "last"), expected);
    convert_to(from, folder / "out", {.to = Form::HuggingFace});
    EXPECT_EQ(contents(folder / "out"), weights(expected));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::ValuesIn(kTinyModels),
                         [](const auto& model) { return model.param; });

TEST(Convert, WeightsChangeTheirTypeAndTheOptimizersStateDoesNot) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("qwen2"));
    convert_to(folder / "run", folder / "bf16", {.to = Form::Full, .type = ElementType::BFloat16});
    convert_to(folder / "run", folder / "hf", {.to = Form::HuggingFace, .type = ElementType::BFloat16});
    const auto before = contents(folder / "run"), after = contents(folder / "bf16"),
               exported = contents(folder / "hf");
    for (const auto& [name, tensor] : before) {
        const bool weight = name.starts_with(kModelPrefix);
        EXPECT_EQ(after.at(name).info.type, weight ? ElementType::BFloat16 : ElementType::Float32) << name;
        if (!weight) {
            EXPECT_EQ(after.at(name), tensor);
            continue;
        }
        EXPECT_EQ(exported.at(name), after.at(name));
        for (int64_t i = 0; i < tensor.info.num_elements();
             ++i) {  // to nearest, ties to even, of numbers that are finite
            uint32_t wide = 0;
            uint16_t narrow = 0;
            std::memcpy(&wide, &tensor.bytes[4 * i], 4);
            std::memcpy(&narrow, &after.at(name).bytes[2 * i], 2);
            ASSERT_EQ(narrow, static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)) << name;
        }
    }
    const auto config = nlohmann::json::parse(read_file(folder / "hf" / "config.json"));
    EXPECT_EQ(config["dtype"], "bfloat16");
    EXPECT_EQ(config["torch_dtype"], "bfloat16");
    convert_to(folder / "bf16", folder / "back", {.to = Form::Full, .type = ElementType::Float32});
    convert_to(folder / "back", folder / "bf16 again", {.to = Form::Full, .type = ElementType::BFloat16});
    EXPECT_EQ(contents(folder / "bf16 again"), after);
}

TEST(Convert, NumbersThatATypeCannotHoldAreSaid) {
    const ScratchFolder folder;
    write_hugging_face(folder / "hf", tiny_spec("llama"), ElementType::Float32);
    const ModelSource source = open_model(folder / "hf");
    const auto run = [&](ElementType type) {
        const auto conversions = plan(source, {.to = Form::Full, .type = type});
        const auto not_finite = run_conversions(
            source, conversions, {}, [](size_t, const layout::Slab&, std::span<const std::byte>) {});
        std::vector<std::string> warnings;
        for (size_t i = 0; i < conversions.size(); ++i)
            warnings.push_back(not_finite[i].text(conversions[i]));
        std::erase(warnings, "");
        return warnings;
    };
    EXPECT_EQ(run(ElementType::Float16), std::vector<std::string>{});
    // The last tensor of the file: model.norm.weight. Its last number becomes 1e30.
    const auto path = folder / "hf" / "model.safetensors";
    const float large = 1e30F;
    std::string bytes = read_file(path);
    std::memcpy(bytes.data() + bytes.size() - 4, &large, 4);
    write_file(path, bytes);
    EXPECT_EQ(run(ElementType::BFloat16), std::vector<std::string>{});
    const auto warnings = run(ElementType::Float16);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_EQ(warnings[0], "model/norm.weight: of 26 elements 1 are too large for f16 and became infinite");
    const float infinite = std::numeric_limits<float>::infinity();
    std::memcpy(bytes.data() + bytes.size() - 8, &infinite, 4);
    write_file(path, bytes);
    for (const ElementType type : {ElementType::Float32, ElementType::BFloat16}) {
        ASSERT_EQ(run(type).size(), 1u);
        EXPECT_EQ(run(type)[0], "model/norm.weight: of 26 elements 1 are NaN or infinite");
    }
    expect_message(run(ElementType::Float16)[0], {"1 are NaN or infinite, 1 are too large for f16"});
}

TEST(Convert, TiedModelsHaveNoHeadOnTheOtherSide) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("llama_tied"));
    convert_to(folder / "run", folder / "hf", {.to = Form::HuggingFace});
    EXPECT_EQ(read_file(folder / "hf" / "model.safetensors").find("lm_head"), std::string::npos);
    EXPECT_TRUE(nlohmann::json::parse(read_file(folder / "hf" / "config.json"))["tie_word_embeddings"]);
}

TEST(Convert, LargeModelsAreSplitOverFiles) {
    const ScratchFolder folder;
    write_hugging_face(folder / "one", tiny_spec("llama"), ElementType::Float32);
    // The table has 6344 bytes: its file is larger than asked for, and holds nothing else.
    convert_to(folder / "one", folder / "many", {.to = Form::HuggingFace, .max_file_bytes = 6000});
    EXPECT_EQ(contents(folder / "many"), contents(folder / "one"));
    const auto index = nlohmann::json::parse(read_file(folder / "many" / "model.safetensors.index.json"));
    std::map<std::string, int> tensors;
    for (const auto& [tensor, file] : index["weight_map"].items()) ++tensors[file];
    const std::string last = tensors.rbegin()->first;
    EXPECT_EQ(last, "model-00015-of-00015.safetensors");
    EXPECT_EQ(tensors.size(), 15u);
    EXPECT_EQ(tensors.at("model-00001-of-00015.safetensors"), 1);
    int64_t total = 0;
    for (const auto& [name, tensor] : contents(folder / "one")) total += tensor.info.num_bytes();
    EXPECT_EQ(index["metadata"]["total_size"], total);
    EXPECT_FALSE(fs::exists(folder / "many" / "model.safetensors"));
    convert_to(folder / "many", folder / "one again", {.to = Form::HuggingFace});
    EXPECT_EQ(read_file(folder / "one again" / "model.safetensors"),
              read_file(folder / "one" / "model.safetensors"));
}

TEST(Convert, ExpertsOfALayerMayBeInSeveralFiles) {
    const ScratchFolder folder;
    write_hugging_face(folder / "one", tiny_spec("mixtral"));
    // Each of the 66 matrices has 1924 bytes: three of them fit in a file.
    convert_to(folder / "one", folder / "many", {.to = Form::HuggingFace, .max_file_bytes = 6000});
    const auto index = nlohmann::json::parse(read_file(folder / "many" / "model.safetensors.index.json"));
    const std::string first = "model.layers.0.block_sparse_moe.experts.0.w1.weight",
                      last = "model.layers.0.block_sparse_moe.experts.10.w1.weight";
    EXPECT_NE(index["weight_map"].at(first), index["weight_map"].at(last));
    convert_to(folder / "many", folder / "sharded", {.to = Form::Sharded, .num_shards = 5});
    convert_to(folder / "sharded", folder / "one again", {.to = Form::HuggingFace});
    EXPECT_EQ(read_file(folder / "one again" / "model.safetensors"),
              read_file(folder / "one" / "model.safetensors"));
}

TEST(Convert, WhatTheSourcesConfigSaysBesideTheArchitectureGoesAlong) {
    const ScratchFolder folder;
    write_hugging_face(folder / "in", tiny_spec("qwen3"));
    auto config = nlohmann::json::parse(read_file(folder / "in" / "config.json"));
    config["eos_token_id"] = 7;
    config["max_position_embeddings"] = 99;
    config["transformers_version"] = "4.1";
    config["dtype"] = "float64";  // but the weights are bf16
    write_file(folder / "in" / "config.json", config.dump());
    convert_to(folder / "in", folder / "full", {.to = Form::Full});
    convert_to(folder / "full", folder / "out", {.to = Form::HuggingFace});
    config["dtype"] = config["torch_dtype"] = "bfloat16";
    EXPECT_EQ(nlohmann::json::parse(read_file(folder / "out" / "config.json")), config);
}

/// Changes a byte of a file.
void flip(const fs::path& path, int64_t at) {
    std::string bytes = read_file(path);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 4);
    write_file(path, bytes);
}

/// Where a tensor's last slab's first byte lies.
std::pair<fs::path, int64_t> place_of(const fs::path& path, const std::string& tensor) {
    const ModelSource source = open_model(path);
    const checkpoint::StoredSlab slab = source.checkpoint->slabs(source.checkpoint->at(tensor)).back();
    return {slab.file < 0 ? path : source.path / source.checkpoint->manifest().files[slab.file].name,
            slab.at};
}

TEST(Convert, ASourceThatHasChangedIsNoticedOnTheWay) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("llama"));
    convert_to(folder / "run", folder / "full", {.to = Form::Full});
    const std::string tensor = "model/layers.1.feed_forward.w2.weight";
    for (const char* name : {"run", "full"}) {
        const auto [file, at] = place_of(folder / name, tensor);
        flip(file, at + 5);
        EXPECT_ERROR(convert_to(folder / name, folder / "out", {.to = Form::HuggingFace}), UserError,
                     file.filename().string(), tensor, "is damaged", "was expected");
        EXPECT_EQ(folder.num_entries(), 2);  // the two sources
    }
}

TEST(Convert, DifferencesAreNamed) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("qwen2"));
    const ModelSource source = open_model(folder / "run");
    const auto compare = [&](const char* name, const ConvertOptions& options) {
        return differences(source, open_model(folder / name), plan(source, options), {.num_threads = 2});
    };
    const ConvertOptions as_hf{.to = Form::HuggingFace, .type = ElementType::Float16},
        as_full{.to = Form::Full};
    convert_to(folder / "run", folder / "hf", as_hf);
    convert_to(folder / "run", folder / "full", as_full);
    EXPECT_EQ(compare("hf", as_hf), std::vector<std::string>{});
    EXPECT_EQ(compare("full", as_full), std::vector<std::string>{});

    // The last tensor by name of the file: model.norm.weight, its last element.
    const auto path = folder / "hf" / "model.safetensors";
    flip(path, std::ssize(read_file(path)) - 1);
    write_file(folder / "hf" / "tokenizer.json", "{}");
    const auto found = compare("hf", as_hf);
    ASSERT_EQ(found.size(), 2u);
    expect_message(found[0], {"tokenizer.json differs"});
    expect_message(found[1], {"model/norm.weight: 1 of 26 elements differ"});

    const auto mixed = compare("full", {.to = Form::HuggingFace});  // as if the means should not be there
    ASSERT_EQ(mixed.size(), 2 * model::model_parameters(source.spec).size());
    expect_message(mixed[0], {"optimizer/", "should not be there"});
    expect_message(compare("full", as_hf)[0], {"optimizer/"});
    expect_message(compare("hf", as_full).back(), {"optimizer/second/", "is missing"});
}

TEST(Convert, ASignalEndsIt) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("llama"));
    const ModelSource source = open_model(folder / "run");
    for (const Form form : {Form::Sharded, Form::Full, Form::HuggingFace}) {
        std::atomic<int> asked = 0;
        const StreamOptions stream_options{.num_threads = 2, .stopped = [&] { return ++asked > 5; }};
        const ConvertOptions options{.to = form};
        {
            const checkpoint::PartialFolder partial(folder / "out");
            EXPECT_ERROR(convert(source, plan(source, options), options, partial.path(), stream_options),
                         RunError, "signal");
        }
        EXPECT_EQ(folder.num_entries(), 1);
    }
}

TEST(Inspect, SaysWhatThereIs) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("qwen3"));
    const ModelSource source = open_model(folder / "run");
    const std::string text =
        inspection_text({.source = source, .faults = std::vector<std::string>{"one fault"}});
    for (const char* part :
         {"step         70", "context      4097 tokens", "dp_shard 2, tp 2", "form         sharded",
          "shard-00001-of-00004.h5", "model/layers.1.attention.q_norm.weight", "[61, 26]", "4 slabs",
          "1 fault\n", "one fault"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
}

}  // namespace
}  // namespace argosy::interop
