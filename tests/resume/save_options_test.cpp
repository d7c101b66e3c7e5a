// The options of a run's saves, made from a configuration.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "resume/checkpointer.h"
#include "scratch_folder.h"

namespace argosy::resume {
namespace {

/// The longest context that the saved steps of a run record.
int64_t saved_context(const config::JobConfig& config, const model::ModelSpec& spec, const Start& start) {
    const SaveOptions options =
        save_options(config, spec, layout::MeshShape{{1, 1, 1, 1, 1}}, start, /*final_step=*/1);
    return nlohmann::json::parse(options.description.model).at("max_position_embeddings");
}

TEST(SaveOptions, TheLongestContextIsThatOfTrainingOrOfTheLoadedModel) {
    config::JobConfig config;
    config.checkpoint.enable = true;
    config.training.seq_len = 1000;
    const model::ModelSpec plain = model::preset("qwen3", "0.6B"), scaled = model::preset("llama3", "8B");
    EXPECT_EQ(saved_context(config, plain, {}), 1000);
    EXPECT_EQ(saved_context(config, scaled, {}), 131072);
    EXPECT_EQ(saved_context(config, plain, {.max_context = 4096}), 4096);  // weights that were loaded
    EXPECT_EQ(saved_context(config, plain, {.max_context = 512}), 1000);

    const ScratchFolder folder;
    config.model.hf_assets_path = (folder / "").string();
    EXPECT_EQ(saved_context(config, plain, {}), 1000) << "a tokenizer alone says nothing";
    write_file(folder / "config.json", "{}");
    EXPECT_EQ(saved_context(config, plain, {}), 40960);  // as in the model's config.json
    config.training.seq_len = 200000;
    EXPECT_EQ(saved_context(config, plain, {}), 200000);
    EXPECT_EQ(saved_context(config, scaled, {.max_context = 131072}), 200000);
    // The attention factor of longrope follows from the context.
    model::ModelSpec longrope = model::preset("phi3", "mini-4k");
    longrope.rope_scaling = {.type = model::RopeScaling::Type::Longrope, .original_context = 4096};
    longrope.rope_scaling->short_factors = longrope.rope_scaling->long_factors = std::vector<double>(48, 1);
    EXPECT_EQ(saved_context(config, longrope, {.max_context = 131072}), 4096);
}

}  // namespace
}  // namespace argosy::resume
