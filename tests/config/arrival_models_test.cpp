// Translated models: names of plain Llamas, sizes that a file has, configurations that TorchTitan prints from
// Python, and models that are not translated.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "config/arrivals.h"

namespace argosy::config {
namespace {

Arrival printed(const std::string& text) {
    return translate(ForeignProgram::TorchTitan, read_printed_python(text, "F"));
}

std::string size_of(const Arrival& arrival, const std::string& key) {
    const auto found = std::ranges::find(arrival.sizes, key, &Setting::key);
    return found == arrival.sizes.end() ? "none" : toml_text(found->value);
}

TEST(ArrivalModels, WhatTorchTitanPrintsOfPythonIsRead) {
    const Arrival arrival = printed(torchtitan_printed());
    EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
    const JobConfig config = read_back(arrival);
    EXPECT_EQ(config.training.seq_len, 64);
    EXPECT_EQ(config.training.local_batch_size, 4);
    EXPECT_EQ(config.training.global_batch_size, 16);
    EXPECT_EQ(config.training.steps, 2);
    EXPECT_FALSE(config.training.attend_across_documents);
    EXPECT_TRUE(config.training.shuffle);
    EXPECT_EQ(config.optimizer.lr, 3e-4);
    EXPECT_EQ(config.optimizer.beta2, 0.97);
    EXPECT_EQ(config.optimizer.weight_decay, 0.2);
    EXPECT_EQ(config.optimizer.state_dtype, Precision::BFloat16);
    EXPECT_EQ(config.lr_scheduler.decay_type, DecayType::Cosine);
    EXPECT_EQ(config.activation_checkpoint.mode, RecomputeMode::Selective);
    EXPECT_EQ(config.validation.seq_len, 64);
    EXPECT_EQ(config.validation.local_batch_size, 4);
    EXPECT_EQ(config.compile.graphs, Switch::Off);
    EXPECT_EQ(config.debug.seed, 7);
    EXPECT_EQ(config.model.hf_assets_path, "./assets/hf/Tiny");
    EXPECT_EQ(
        config.job.dump_folder,
        "./outputs/a folder whose name is longer than the columns of a terminal, with its 'own' quotes");
    EXPECT_EQ(size_of(arrival, "num_hidden_layers"), "3");
    EXPECT_EQ(size_of(arrival, "intermediate_size"), "320");
    EXPECT_EQ(size_of(arrival, "rope_scaling.rope_type"), "\"llama3\"");
}

TEST(ArrivalModels, MuonBesideAdamWIsRead) {
    const std::string head = "                pattern='.*',\n";
    std::string text = torchtitan_printed();
    text.replace(text.find(head), head.size(), "                pattern='tok_embeddings|output|norm',\n");
    const std::string end = "            )\n        ],\n        implementation=";
    const auto read = [&](const std::string& kwargs) {
        std::string with_muon = text;
        with_muon.replace(with_muon.find(end), end.size(),
                          "            ),\n            ParamGroupConfig(pattern='.*', optimizer_name='Muon', "
                          "optimizer_kwargs={" +
                              kwargs + "})\n        ],\n        implementation=");
        return printed(with_muon);
    };
    const Arrival arrival =
        read("'lr': 0.02, 'momentum': 0.9, 'nesterov': False, 'ns_steps': 6, 'per_head': True");
    EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
    const Optimizer optimizer = read_back(arrival).optimizer;
    EXPECT_EQ(optimizer.name, OptimizerName::Muon);
    EXPECT_EQ(optimizer.lr, 0.02);
    EXPECT_EQ(optimizer.beta2, 0.97);
    EXPECT_EQ(optimizer.muon_momentum, 0.9);
    EXPECT_FALSE(optimizer.muon_nesterov);
    EXPECT_EQ(optimizer.muon_ns_steps, 6);
    EXPECT_EQ(optimizer.muon_split, MuonSplit::Head);
    EXPECT_EQ(optimizer.muon_adjust_lr, MuonAdjustLr::Original) << "PyTorch's default";
    EXPECT_NE(arrival_text(arrival, {}).find("[[optimizer.groups]]"), std::string::npos) << "for AdamW's lr";
    EXPECT_EQ(read_back(read("'adjust_lr_fn': 'match_rms_adamw'")).optimizer.lr, 1e-3);
    EXPECT_EQ(read("'adjust_lr_fn': 'spectral_unclamped'").count(Fate::Missing), 1);
}

TEST(ArrivalModels, TheJsonOfTorchTitanIsRead) {
    const std::string json =
        "[titan] 2026-08-01 12:00:00,000 - root - INFO - Running with configs: {\n  \"model_spec\": {\n    "
        "\"name\": "
        "\"qwen3\",\n    \"flavor\": \"0.6B\"\n  },\n  \"dump_folder\": \"out/\\u00e9\\ud83d\\ude00\",\n  "
        "\"training\": {\n    "
        "\"local_batch_size\": 3,\n    \"seq_len\": 128\n  },\n  \"activation_checkpoint\": null,\n  "
        "\"parallelism\": {\n    "
        "\"module_fqns_per_model_part\": [[\"tok_embeddings\", \"layers.0\"], [\"norm\", \"output\"]],\n    "
        "\"pipeline_parallel_degree\": 2\n  },\n  \"model_converters\": {\n    \"converters\": [\n      "
        "{\"recipe_name\": "
        "\"rowwise\", \"filter_fqns\": [\"output\"], \"emulate\": false}\n    ]\n  }\n}\nNCCL version 2\n";
    const Arrival arrival = printed(json);
    EXPECT_EQ(arrival.count(Fate::Missing), 1) << arrival_text(arrival, {});
    EXPECT_EQ(
        fate_of(arrival, "parallelism.module_fqns_per_model_part"),
        "missing: nearest: parallelism.pipeline_parallel_layers_per_stage: the number of layers of each "
        "stage, as 3,4,3");
    const JobConfig config = read_back(arrival);
    EXPECT_EQ(config.model.name, "qwen3");
    EXPECT_EQ(config.model.flavor, "0.6B");
    EXPECT_EQ(config.job.dump_folder, "out/\xC3\xA9\xF0\x9F\x98\x80");
    EXPECT_EQ(config.training.local_batch_size, 3);
    EXPECT_EQ(config.activation_checkpoint.mode, RecomputeMode::None);
    EXPECT_EQ(config.model.converters, std::vector{Converter::Float8});
    EXPECT_EQ(config.float8.recipe_name, Float8Recipe::Rowwise);
    EXPECT_TRUE(arrival.sizes.empty());
}

TEST(ArrivalModels, LayersThatDifferAndOtherMasksAreToldApart) {
    std::string text = torchtitan_printed();
    const std::size_t second = text.find("n_heads=8", text.find("n_heads=8", text.find("n_heads=8") + 1) + 1);
    text.replace(second, 9, "n_heads=4");
    const Arrival arrival = printed(text);
    EXPECT_EQ(
        fate_of(arrival, "model_spec.model.layers_differ"),
        "missing: nearest: like layers of a Llama, or of Qwen 3 with norms of q and k; none has biases");
    EXPECT_TRUE(arrival.sizes.empty());
}

TEST(ArrivalModels, MutatedTextIsReadOrRefused) {
    std::mt19937 random(1);
    int num_refused = 0;
    const std::string whole = torchtitan_printed();
    for (int round = 0; round < 300; ++round) {
        std::string text = whole;
        for (int edit = 0; edit < 3; ++edit) {
            const std::size_t at = random() % text.size();
            if (random() % 2) {
                text[at] = "\n:=,()[]{}<>'\"\\x0"[random() % 17];
            } else {
                text.erase(at, random() % 9);
            }
        }
        try {
            EXPECT_NE(arrival_text(printed(text), {}), "");
        } catch (const UserError&) {
            ++num_refused;
        }
    }
    EXPECT_GT(num_refused, 10);
}

TEST(ArrivalModels, PythonIsRefusedWithTheCommandThatPrintsIt) {
    try {
        translate(
            {.program = ForeignProgram::TorchTitan, .path = "torchtitan/models/qwen3/config_registry.py"});
        FAIL();
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what())
                      .find("python -m torchtitan.config.manager --module qwen3 --config NAME"),
                  std::string::npos)
            << error.what();
    }
}

TEST(ArrivalModels, PlainLlamasHaveNames) {
    for (const auto& [name, flavor] :
         {std::pair{"llama", "7B"}, {"llama2", "70B"}, {"llama", "debugmodel"}}) {
        const Arrival arrival =
            titan(fmt::format("[model]\nname = \"{}\"\nflavor = \"{}\"\ntokenizer_path = "
                              "\"./datasets/tokenizer/tokenizer.model\"\n",
                              name, flavor));
        EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
        EXPECT_EQ(read_back(arrival).model.name, "llama2");
        EXPECT_EQ(read_back(arrival).model.hf_assets_path, "./datasets/tokenizer");
    }
    for (const auto& [name, flavor] : {std::pair{"meta-llama/Llama-2-7b-chat-hf", "7B"},
                                       {"meta-llama/Llama-3.3-70B-Instruct", "70B"},
                                       {"meta-llama/Meta-Llama-3-8B", "8B-8k"},
                                       {"tiny-llama-1.1b", "1.1B"},
                                       {"Qwen/Qwen3-8B-Base", "8B"},
                                       {"micro-llama-300M", "300M"}}) {
        const Arrival arrival = litgpt(fmt::format("model_name: {}\ntrain:\n  max_seq_length: 64\n", name));
        EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
        EXPECT_EQ(arrival.config.model.flavor, flavor);
    }
}

constexpr const char* kSizes =
    "model_name: stories\nmodel_config:\n  name: stories\n  hf_config: {}\n  block_size: 256\n  "
    "padded_vocab_size: 512\n"
    "  n_layer: 2\n  n_head: 4\n  n_query_groups: 2\n  n_embd: 64\n  head_size: 16\n  rotary_percentage: "
    "1.0\n"
    "  parallel_residual: false\n  bias: false\n  norm_class_name: RMSNorm\n  mlp_class_name: LLaMAMLP\n"
    "  intermediate_size: 96\n  n_expert: 0\ntrain:\n  max_seq_length: 64\n  tie_embeddings: true\n";

TEST(ArrivalModels, SizesOfLitGpt) {
    const Arrival arrival = litgpt(kSizes);
    EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
    EXPECT_EQ(size_of(arrival, "num_hidden_layers"), "2");
    EXPECT_EQ(size_of(arrival, "num_key_value_heads"), "2");
    EXPECT_EQ(size_of(arrival, "tie_word_embeddings"), "true");
    // Lit-GPT's defaults are those of another architecture, so that a Llama says otherwise.
    std::string text = kSizes;
    text.replace(text.find("  norm_class_name: RMSNorm\n"), 27, "");
    const Arrival other = litgpt(text);
    EXPECT_EQ(fate_of(other, "model_config.norm_class_name").find("missing: nearest: sizes of a Llama"), 0U);
    EXPECT_TRUE(other.sizes.empty());
}

TEST(ArrivalModels, OtherKindsOfModelsAreRefused) {
    for (const char* model :
         {"name = \"flux\"\nflavor = \"flux-dev\"", "name = \"deepseek_v3\"\nflavor = \"16B\"",
          "name = \"llama4\"\nflavor = \"17bx16e\"", "name = \"qwen3\"\nflavor = \"30B-A3B\"",
          "name = \"gpt_oss\"\nflavor = \"20b\"", "name = \"llama3-siglip2\"", "name = \"vlm\"",
          "name = \"qwen3\"\nflavor = \"debugmodel_moe\""}) {
        try {
            titan(fmt::format("[model]\n{}\n", model));
            ADD_FAILURE() << model;
        } catch (const UserError& error) {
            EXPECT_NE(std::string(error.what()).find("which is not translated here; nothing is written"),
                      std::string::npos);
        }
    }
    EXPECT_THROW(litgpt("model_name: x\nmodel_config:\n  n_expert: 8\n"), UserError);
    EXPECT_THROW(litgpt("model_name: Mixtral-8x7B-v0.1\n"), UserError);
    EXPECT_NO_THROW(litgpt("model_name: R1-Distill-Llama-8B\n"));
    std::string text = torchtitan_printed();
    for (std::size_t at; (at = text.find("moe=None")) != std::string::npos;)
        text.replace(at, 8, "moe=Config(n=4)");
    EXPECT_THROW(translate({.program = ForeignProgram::TorchTitan, .path = ConfigFile(text).path()}),
                 UserError);
    text = torchtitan_printed();
    text.replace(text.find("bias=False"), 10, "rank=8, alpha=16.0, bias=False");
    EXPECT_THROW(translate({.program = ForeignProgram::TorchTitan, .path = ConfigFile(text).path()}),
                 UserError);
}

TEST(ArrivalModels, OptionsInTheWordsOfOthers) {
    const JobConfig config =
        parse_command_line({"--quantize.dense.float8.enable", "--parallelism.pipeline_parallel_schedule",
                            "interleave_1f1b", "--parallelism.pipeline_parallel_degree", "2"})
            .config;
    EXPECT_EQ(config.model.converters, std::vector{Converter::Float8});
    EXPECT_EQ(config.parallelism.pipeline_parallel_schedule,
              PipelineSchedule::InterleavedOneForwardOneBackward);
    for (const char* option : {"--strategy=FSDPStrategy(sharding_strategy=\"FULL_SHARD\")", "--devices=8",
                               "--precision=bf16-true"}) {
        try {
            parse_command_line({option});
            ADD_FAILURE() << option;
        } catch (const UserError& error) {
            EXPECT_EQ(std::string(error.what()).find("did you mean"), std::string::npos) << error.what();
            EXPECT_EQ(std::string(error.what()).find("--help lists"), std::string::npos) << error.what();
        }
    }
    const Arrival arrival = litgpt(
        "seed: 1\nstrategy:\n  class_path: lightning.fabric.strategies.FSDPStrategy\n  init_args:\n    "
        "sharding_strategy: "
        "FULL_SHARD\n    cpu_offload: false\n",
        {"devices", "8", "precision", "bf16-true"});
    EXPECT_EQ(arrival.count(Fate::Missing), 1) << arrival_text(arrival, {});  // the length of samples
    EXPECT_EQ(arrival.config.training.dtype, Precision::BFloat16);
}

}  // namespace
}  // namespace argosy::config
