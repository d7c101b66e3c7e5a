// Translated configurations: defaults that a file leaves out, the command line over the file, and the tables.
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/arrivals.h"

namespace argosy::config {
namespace {

bool fits(const ForeignKey& row, std::string_view key) {
    return row.key.ends_with('.') ? key.starts_with(row.key) : key == row.key;
}

/// The rows that fit none of `settings`, in the order of the table.
std::vector<std::string_view> rows_without_setting(const ForeignTable& table,
                                                   const std::vector<Setting>& settings) {
    std::vector<std::string_view> rows;
    for (const ForeignKey& row : table.keys) {
        if (std::ranges::none_of(settings, [&](const Setting& setting) { return fits(row, setting.key); }))
            rows.push_back(row.key);
    }
    return rows;
}

TEST(ArrivalRules, RowsSetKeysOfThisProgram) {
    for (const ForeignTable* table : {&torchtitan_table(), &litgpt_table()}) {
        for (const ForeignKey& row : table->keys) {
            if (!row.rule.sets_a_key()) continue;
            EXPECT_TRUE(find_field(row.ours.empty() ? row.key : row.ours)) << row.key;
            EXPECT_TRUE(row.second.empty() || find_field(row.second)) << row.key;
        }
        for (const Implied& implied : table->implied) {
            EXPECT_TRUE(implied.ours.empty() || find_field(implied.ours)) << implied.what;
            for (const std::string_view other : {implied.max, implied.divisor})
                EXPECT_TRUE(other.empty() || find_field(other)) << implied.what;
        }
        for (const Need& need : table->needs) {
            const std::string name(need.key.substr(0, need.key.find_last_not_of('.') + 1));
            EXPECT_TRUE(find_section(name) || find_field(name)) << need.key;
        }
    }
}

TEST(ArrivalRules, SentencesAreWholeOnes) {
    for (const ForeignTable* table : {&torchtitan_table(), &litgpt_table()}) {
        for (const ForeignKey& row : table->keys) EXPECT_FALSE(row.sentence.ends_with(' ')) << row.key;
    }
    const std::string answer =
        fate_of(titan("", {"training.dataset_path", "1.5e300"}), "training.dataset_path");
    EXPECT_TRUE(answer.ends_with("name it with training.dataset_path")) << answer;
}

/// A row whose key is misspelled answers nothing, so each is a key of v0.2.2, one that is printed since, or
/// one of these other names.
TEST(ArrivalRules, RowsAreKeysOfTorchTitan) {
    const std::vector<std::string_view> older = {"job.print_args",
                                                 "metrics.use_for_integration_test",
                                                 "job.use_for_integration_test",
                                                 "metrics.enable_color_printing",
                                                 "metrics.rank_0_only",
                                                 "model_spec.model.layers_differ",
                                                 "model_spec.model.norm_eps",
                                                 "model_spec.model.layers.attention.head_dim",
                                                 "model_spec.model.layers.attention.bias",
                                                 "model_spec.model.layers.attention.use_rope",
                                                 "model_spec.model.layers.attention.rope.max_seq_len",
                                                 "model_spec.model.layers.feed_forward.hidden_dim",
                                                 "model_spec.model.layers.feed_forward.bias",
                                                 "(float8)",
                                                 "model_converters.print_after_conversion",
                                                 "model_converters.converters",
                                                 "model.norm_type",
                                                 "model.use_flex_attn",
                                                 "model.attn_mask_type",
                                                 "optimizer.muon.pattern",
                                                 "optimizer.muon.lr",
                                                 "optimizer.muon.weight_decay",
                                                 "optimizer.muon.momentum",
                                                 "optimizer.muon.nesterov",
                                                 "optimizer.muon.ns_steps",
                                                 "optimizer.muon.adjust_lr_fn",
                                                 "optimizer.muon.per_head",
                                                 "optimizer.adamw.pattern",
                                                 "optimizer.adamw.betas",
                                                 "optimizer.adamw.eps",
                                                 "optimizer.adamw.",
                                                 "optimizer.optimizer_factory_kwargs_by_name.",
                                                 "optimizer.param_groups.",
                                                 "optimizer.fused",
                                                 "training.enable_compiled_autograd",
                                                 "training.warmup_pct",
                                                 "training.enable_selective_ac",
                                                 "experimental.torch_spmd",
                                                 "training.data_parallel_type",
                                                 "parallelism.pipeline_parallel_split_points",
                                                 "parallelism.pipeline_parallel_microbatches",
                                                 "parallelism.enable_compiled_autograd",
                                                 "checkpoint.interval_type",
                                                 "tokenizer.",
                                                 "quantize.linear.float8.enable",
                                                 "quantize.linear.float8.force_recompute_fp8_weight_in_bwd",
                                                 "quantize.linear.mx.use_fp8_dim1_cast_triton_kernel",
                                                 "experimental.custom_model_path"};
    std::vector<Setting> settings = torchtitan_defaults();
    for (Setting& setting : read_printed_python(torchtitan_printed(), "F")) {
        setting.key = newest_name(torchtitan_table(), setting.key);
        settings.push_back(setting);
    }
    EXPECT_EQ(rows_without_setting(torchtitan_table(), settings), older);
}

/// The keys that litgpt pretrain prints, and below them those of AdamW and of older versions.
constexpr const char* kLitGptKeys = R"(
model_name: m
model_config: m
model_config.name: m
model_config.hf_config.org: o
model_config.block_size: 1
model_config.vocab_size: 1
model_config.padding_multiple: 1
model_config.padded_vocab_size: 1
model_config.n_layer: 1
model_config.n_embd: 1
model_config.n_head: 1
model_config.n_query_groups: 1
model_config.head_size: 1
model_config.intermediate_size: 1
model_config.norm_eps: 1
model_config.rope_base: 1
model_config.rope_adjustments.factor: 1
model_config.rope_adjustments.low_freq_factor: 1
model_config.rope_adjustments.high_freq_factor: 1
model_config.rope_adjustments.original_max_seq_len: 1
model_config.norm_qk: false
model_config.attn_bias: false
model_config.norm_class_name: RMSNorm
model_config.mlp_class_name: LLaMAMLP
model_config.rotary_percentage: 1.0
model_config.parallel_residual: false
model_config.bias: false
model_config.norm_qk_type: default
model_config.rope_condense_ratio: 1
model_config.gelu_approximate: none
model_config.n_expert: 0
model_config.n_expert_per_token: 0
model_config.routed_scaling_factor: 1.0
model_config.norm_1: true
model_config.norm_2: true
model_config.scale_embeddings: false
out_dir: d
precision: p
initial_checkpoint_dir: d
resume: false
data.class_path: c
train.save_interval: 1000
train.log_interval: 1
train.global_batch_size: 512
train.micro_batch_size: 4
train.lr_warmup_steps: 2000
train.lr_warmup_fraction: 0
train.epochs: 1
train.max_tokens: 1
train.max_steps: 1
train.max_time: 1
train.max_seq_length: 1
train.tie_embeddings: false
train.max_norm: 1
train.min_lr: 1
eval.interval: 1
eval.max_new_tokens: 1
eval.max_iters: 1
eval.initial_validation: false
eval.final_validation: true
eval.evaluate_example: first
log.project: p
optimizer.class_path: torch.optim.AdamW
optimizer.init_args.lr: 1
optimizer.init_args.betas: [0.9, 0.95]
optimizer.init_args.eps: 1
optimizer.init_args.weight_decay: 1
optimizer.init_args.amsgrad: false
optimizer.init_args.maximize: false
optimizer.init_args.foreach: false
optimizer.init_args.capturable: false
optimizer.init_args.differentiable: false
optimizer.init_args.fused: true
devices: 1
strategy: fsdp
strategy.init_args.cpu_offload: false
strategy.init_args.sharding_strategy: FULL_SHARD
accelerator: cuda
num_nodes: 1
tokenizer_dir: d
logger_name: csv
seed: 42
model.name: m
data: OpenWebText
optimizer: AdamW
train.learning_rate: 1
train.weight_decay: 1
train.beta1: 1
train.beta2: 1
)";

TEST(ArrivalRules, RowsAreKeysOfLitGpt) {
    EXPECT_EQ(rows_without_setting(litgpt_table(), read_yaml(kLitGptKeys, "F")),
              std::vector<std::string_view>());
}

TEST(ArrivalRules, EachKeyOfThisProgramIsAnswered) {
    for (const ForeignProgram program : {ForeignProgram::TorchTitan, ForeignProgram::LitGpt}) {
        for (const std::string& key : keys()) {
            for (const char* place : {"in F:1", "on the command line"}) {
                for (const Value& value : {Value(true), Value(int64_t{1}), Value("foo")}) {
                    const Arrival arrival = translate(program, {{key, value, "x", place}});
                    EXPECT_NE(fate_of(arrival, key).find(": "), std::string::npos) << key;
                }
            }
        }
    }
    const std::vector<std::string> words = {"validation.enable",
                                            "true",
                                            "validation.dataset_path",
                                            "v.h5",
                                            "checkpoint.initial_load_path",
                                            "DIR"};
    EXPECT_TRUE(litgpt("seed: 1\n", words).config.validation.enable);
    EXPECT_EQ(litgpt("training:\n  dataset_path: foo\n").config.training.dataset_path, "foo");
}

TEST(ArrivalRules, Float16IsMissingAndBfloat16Nearest) {
    const Arrival arrival = titan("[training]\nmixed_precision_param = \"float16\"\n");
    const std::string fate = fate_of(arrival, "training.mixed_precision_param");
    EXPECT_TRUE(fate.starts_with("missing: ")) << fate;
    EXPECT_NE(fate.find("; nearest: bfloat16, "), std::string::npos) << fate;
    EXPECT_EQ(arrival.config.training.mixed_precision_param, Precision::BFloat16);
    EXPECT_TRUE(fate_of(litgpt("precision: 16-mixed\n"), "precision").starts_with("missing: "));
}

TEST(ArrivalRules, WhatAFileLeavesOutHasTheDefaultsOfTorchTitan) {
    JobConfig given = translate(ForeignProgram::TorchTitan, torchtitan_defaults()).config;
    given.model.hf_assets_path.clear();  // a folder of TorchTitan's repository
    given.job.description.clear();
    EXPECT_EQ(titan("").config, given);
    EXPECT_EQ(titan("").config.checkpoint.export_dtype, Precision::Float32);
    // Not beside a last checkpoint that can be resumed, which has no export.
    EXPECT_EQ(read_back(titan("[checkpoint]\nlast_save_model_only = false\n")).checkpoint.export_dtype,
              std::nullopt);
    EXPECT_EQ(titan("[checkpoint]\nexport_dtype = \"bfloat16\"\n").config.checkpoint.export_dtype,
              Precision::BFloat16);
}

TEST(ArrivalRules, WhatAFileLeavesOutHasTheDefaultsOfLitGpt) {
    const char* defaults =
        "seed: 42\ntrain:\n  save_interval: 1000\n  global_batch_size: 512\n  micro_batch_size: 4\n"
        "  lr_warmup_steps: 2000\n  max_tokens: 3e12\n  max_norm: 1\n  min_lr: 4e-5\neval:\n  interval: "
        "1000\n"
        "  max_iters: 100\noptimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    lr: 1e-3\n"
        "    betas: [0.9, 0.999]\n    eps: 1e-8\n    weight_decay: 0.01\n";
    EXPECT_EQ(litgpt("").config, litgpt(defaults).config);
    const JobConfig config = litgpt("train:\n  min_lr: 1e-4\n").config;
    EXPECT_EQ(config.optimizer.lr, 1e-3);
    EXPECT_NEAR(config.lr_scheduler.min_lr_factor, 0.1, 1e-12);
    EXPECT_EQ(config.training.steps, 2861022);  // 3e12 / 512 / 2048, rounded down
}

TEST(ArrivalRules, StepsOfTokensAreWholeOnes) {
    const auto steps = [](const std::string& tokens, const std::string& batch) {
        return litgpt("train:\n  max_tokens: " + tokens + "\n  global_batch_size: " + batch +
                      "\n  micro_batch_size: 1\n  max_seq_length: 2048\n")
            .config.training.steps;
    };
    EXPECT_EQ(steps("10000", "2"), 2);
    EXPECT_EQ(steps("10", "2"), 1);
    EXPECT_EQ(steps("9223372036854775807", "1000"), 4503599627370);
}

TEST(ArrivalRules, TheCommandLineComesAfterEachKeyOfTheFile) {
    const std::string rates = "optimizer:\n  init_args:\n    lr: 4e-4\ntrain:\n  min_lr: 4e-5\n";
    EXPECT_EQ(litgpt(rates, {"lr_scheduler.min_lr_factor", "0.5"}).config.lr_scheduler.min_lr_factor, 0.5);
    EXPECT_NEAR(litgpt(rates, {"optimizer.lr", "8e-4"}).config.lr_scheduler.min_lr_factor, 0.05, 1e-12);
    const Arrival arrival =
        titan("[model]\nconverters = [\"float8\"]\n", {"quantize.linear.float8.enable", "false"});
    EXPECT_TRUE(arrival.config.model.converters.empty());
    EXPECT_EQ(fate_of(arrival, "model.converters"), "no such key");
    const std::string llama = "model_name: Llama-3.1-8B\n";
    const JobConfig qwen = litgpt(llama, {"model.name", "qwen3", "model.flavor", "14B"}).config;
    EXPECT_EQ(qwen.model.name, "qwen3");
    EXPECT_EQ(qwen.model.flavor, "14B");
    EXPECT_EQ(litgpt(llama, {"model.flavor", "70B"}).config.model.name, "llama3");
}

TEST(ArrivalRules, FlavorsWithMasksOfDocumentsKeepThem) {
    for (const char* flavor :
         {"8B_flex", "8B_varlen", "70B_flex", "debugmodel_flex_attn", "debugmodel_varlen_attn"}) {
        const Arrival arrival = titan(fmt::format("[model]\nflavor = \"{}\"\n", flavor));
        EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
        EXPECT_FALSE(read_back(arrival).training.attend_across_documents) << flavor;
    }
    const Arrival plain = titan("[model]\nflavor = \"8B\"\n");
    EXPECT_EQ(fate_of(plain, "model.flavor"), "taken: the same key here");
    EXPECT_TRUE(read_back(plain).training.attend_across_documents);
}

TEST(ArrivalRules, ValuesThatChangeTheRunAreNotPassedOver) {
    const auto fate = [](const Arrival& arrival, const char* key) {
        const std::string answer = fate_of(arrival, key);
        return answer.substr(0, answer.find(':'));
    };
    for (const bool emulate : {false, true}) {
        const Arrival arrival = titan(fmt::format(
            "[model]\nconverters = [\"float8\"]\n[quantize.linear.float8]\nemulate = {}\n", emulate));
        EXPECT_EQ(fate(arrival, "quantize.linear.float8.emulate"), "taken");
        EXPECT_EQ(read_back(arrival).float8.emulate, emulate);
    }
    for (const char* path : {"out/step-10", "/a/lit_model.pth"})
        EXPECT_EQ(fate(litgpt(fmt::format("resume: {}\n", path)), "resume"), "missing");
    for (const char* word : {"false", "true", "auto"})
        EXPECT_EQ(fate(litgpt(fmt::format("resume: {}\n", word)), "resume"), "equivalent");
    EXPECT_EQ(fate(litgpt("train:\n  tie_embeddings: false\n"), "train.tie_embeddings"), "equivalent");
    for (const char* zero : {"0", "0.0"})
        EXPECT_EQ(
            fate(litgpt(fmt::format("train:\n  lr_warmup_fraction: {}\n", zero)), "train.lr_warmup_fraction"),
            "harmless");
    EXPECT_EQ(
        fate(litgpt("optimizer:\n  init_args:\n    betas: [0.9, 0.95, 0.99]\n"), "optimizer.init_args.betas"),
        "missing");
    EXPECT_EQ(fate(litgpt("\xEF\xBB\xBFseed: 7\n"), "seed"), "equivalent");
}

/// Values that look like a row of a table are values as any other.
TEST(ArrivalRules, AListOfValuesHasNoOthers) {
    for (const char* name : {"!", "*", "", "llama3|qwen2", "|", "llama=llama2"}) {
        const Arrival arrival = titan(fmt::format("[model]\nname = \"{}\"\n", name));
        EXPECT_EQ(fate_of(arrival, "model.name").find("missing: "), 0U) << name;
    }
    EXPECT_EQ(fate_of(titan("[experimental]\ncustom_import = \"\"\n"), "experimental.custom_import"),
              "harmless: the value asks for nothing more");
    EXPECT_EQ(
        fate_of(titan("[experimental]\ncustom_import = \"m\"\n"), "experimental.custom_import").find("miss"),
        0U);
}

TEST(ArrivalRules, NeedsAreMetByLaterKeys) {
    const Arrival arrival = titan(
        "[validation]\nenable = true\ndataset_path = \"v.h5\"\n[checkpoint]\nexport_dtype = \"bfloat16\"\n"
        "initial_load_path = \"DIR\"\ninitial_load_in_hf = true\nlast_save_model_only = true\n"
        "[quantize.linear.mx]\nfilter_fqns = [\"output\"]\n[model]\nconverters = [\"mx\"]\n");
    EXPECT_EQ(arrival.count(Fate::Missing) + arrival.count(Fate::Harmless), 0) << arrival_text(arrival, {});
    EXPECT_EQ(arrival.config.checkpoint.initial_load_path, "DIR");
    const Arrival unmet = titan(
        "[validation]\nenable = true\ndataset_path = \"c4\"\n[checkpoint]\ninitial_load_path = \"DIR\"\n"
        "[quantize.linear.mx]\nfilter_fqns = [\"output\"]\n[model]\nconverters = [\"float8\"]\n");
    EXPECT_EQ(unmet.count(Fate::Missing), 1) << arrival_text(unmet, {});
    EXPECT_EQ(fate_of(unmet, "quantize.linear.mx.filter_fqns"),
              "harmless: model.converters has no quantize.linear.mx");
}

TEST(ArrivalRules, TheDateSaysWhetherFloat8CastsTheOutput) {
    const std::string old = "[float8]\nenable_float8_linear = true\n";
    const auto filter = [](const Arrival& arrival) {
        return arrival.config.model.converters.empty() ? std::vector<std::string>{"no float8"}
                                                       : arrival.config.float8.filter_fqns;
    };
    const std::vector<std::string> none, output = {"output"};
    for (const auto& [date, expected] : {std::pair{"2024-07-18", none},
                                         {"2024-07-19", output},
                                         {"2025-04-07", output},
                                         {"2025-04-08", none}}) {
        const Arrival dated = arrival_of(ForeignProgram::TorchTitan, old, {}, date);
        EXPECT_EQ(filter(dated), expected) << date;
        EXPECT_TRUE(dated.warnings.empty()) << date;
    }
    EXPECT_EQ(titan(old).warnings.size(), 1U);
    EXPECT_EQ(titan("[model]\nconverters = [\"float8\"]\n").warnings.size(), 1U);
    const std::string named = "[float8]\nfilter_fqns = [\"wo\"]\n[model]\nconverters = [\"float8\"]\n";
    const Arrival said = arrival_of(ForeignProgram::TorchTitan, named, {}, "2025-01-01");
    EXPECT_EQ(filter(said), std::vector<std::string>{"wo"});
    for (const char* file : {named.c_str(), "[model]\nconverters = [\"quantize.linear.float8\"]\n", ""})
        EXPECT_TRUE(titan(file).warnings.empty()) << file;
    EXPECT_THROW(parse_command_line({"--from-torchtitan", "F.toml", "--torchtitan-date", "June"}), UserError);
    EXPECT_THROW(parse_command_line({"--from-litgpt", "F", "--torchtitan-date", "2025-01-01"}), UserError);
    EXPECT_THROW(parse_command_line({"--torchtitan-date", "2025-01-01"}), UserError);
}

TEST(ArrivalRules, TheDateSaysWhetherFrequenciesAreScaled) {
    const std::string large = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";
    const auto dated = [](const std::string& text, const std::string& date) {
        return arrival_of(ForeignProgram::TorchTitan, text, {}, date);
    };
    EXPECT_EQ(dated(large, "2025-10-07").config.model.flavor, "8B-8k");
    EXPECT_EQ(dated(large, "2025-10-08").config.model.flavor, "8B");
    EXPECT_EQ(titan(large).config.model.flavor, "8B");
    EXPECT_EQ(titan(large).warnings.size(), 1U);
    EXPECT_TRUE(dated(large, "2025-10-08").warnings.empty());
    const std::string largest = "[model]\nname = \"llama3\"\nflavor = \"405B\"\n";
    EXPECT_EQ(dated(largest, "2025-10-07").count(Fate::Missing), titan(largest).count(Fate::Missing) + 1);
    EXPECT_TRUE(titan("[model]\nname = \"qwen3\"\nflavor = \"8B\"\n").warnings.empty());
}

TEST(ArrivalRules, OtherOptionsBesideATranslationAreRefused) {
    for (const std::vector<std::string>& more : {std::vector<std::string>{"--config", "G.toml"},
                                                 {"--plan"},
                                                 {"--gpus", "4"},
                                                 {"--json"},
                                                 {"--print-config"},
                                                 {"--version"},
                                                 {"--from-torchtitan", "G.toml"},
                                                 {"--from-litgpt", "G.yaml"}}) {
        for (const bool first : {true, false}) {
            std::vector<std::string> words = {"--from-torchtitan", "F.toml"};
            words.insert(first ? words.begin() : words.end(), more.begin(), more.end());
            EXPECT_THROW(parse_command_line(words), UserError) << more[0];
        }
    }
}

}  // namespace
}  // namespace argosy::config
