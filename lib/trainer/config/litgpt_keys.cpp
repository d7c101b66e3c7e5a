// Lit-GPT's configurations of `litgpt pretrain`: a reader of their YAML, and what their keys are here.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "config/arrival.h"

namespace argosy::config {
namespace {

using enum Rule::Use;

constexpr const char* kTexts =
    "prepare-data tokenize --input F.jsonl --output F.h5 --tokenizer DIR makes the token file of "
    "training.dataset_path";
constexpr const char* kArchitecture =
    "model.hf_assets_path = a folder with the model's config.json says the architecture";
constexpr const char* kLlamaOnly =
    "sizes of a Llama: norm_class_name RMSNorm, mlp_class_name LLaMAMLP, rotary_percentage 1.0, "
    "parallel_residual and bias false, which are not Lit-GPT's defaults";
constexpr const char* kTied =
    "tie_word_embeddings of a config.json in model.hf_assets_path; Lit-GPT ties if train.tie_embeddings says "
    "so, and the presets as published: llama3 1B and 3B, qwen2 0.5B, 1.5B and 3B, qwen3 0.6B, 1.7B and 4B "
    "are tied, the others are not";
constexpr const char* kExport = "jobs/export_run.py writes runs for MLflow and for Weights & Biases";

constexpr const char* kStrategy =
    "parallelism.data_parallel_shard_degree = -1 shards over all ranks that are left; 1 with "
    "data_parallel_replicate_degree = RANKS is DDP; fsdp_reshard_after_forward = \"never\" is SHARD_GRAD_OP";
constexpr const char* kFused = "updates are fused";

const ForeignKey kLitGptKeys[] = {
    {"model_name",
     Rule(ToKey, Word{"Llama-3.1-8B", "llama3", "8B"}, Word{"Llama-3.1-70B", "llama3", "70B"},
          Word{"Llama-3.1-405B", "llama3", "405B"}, Word{"Llama-3.2-1B", "llama3", "1B"},
          Word{"Llama-3.2-3B", "llama3", "3B"}, Word{"Llama-3.3-70B", "llama3", "70B"},
          Word{"Llama-3-8B", "llama3", "8B-8k"}, Word{"Llama-3-70B", "llama3", "70B-8k"},
          Word{"Llama-2-7b", "llama2", "7B"}, Word{"Llama-2-13b", "llama2", "13B"},
          Word{"Llama-2-70b", "llama2", "70B"}, Word{"tiny-llama-1.1b", "tinyllama", "1.1B"},
          Word{"TinyLlama-1.1B", "tinyllama", "1.1B"}, Word{"micro-llama-300M", "tinyllama", "300M"},
          Word{"MicroLlama", "tinyllama", "300M"}, Word{"Mistral-7B-v0.1", "mistral", "7B"},
          Word{"Qwen2.5-0.5B", "qwen2", "0.5B"}, Word{"Qwen2.5-1.5B", "qwen2", "1.5B"},
          Word{"Qwen2.5-3B", "qwen2", "3B"}, Word{"Qwen2.5-7B", "qwen2", "7B"},
          Word{"Qwen2.5-14B", "qwen2", "14B"}, Word{"Qwen3-0.6B", "qwen3", "0.6B"},
          Word{"Qwen3-1.7B", "qwen3", "1.7B"}, Word{"Qwen3-4B", "qwen3", "4B"},
          Word{"Qwen3-8B", "qwen3", "8B"}, Word{"Qwen3-14B", "qwen3", "14B"},
          Word{"Qwen3-32B", "qwen3", "32B"}),
     kArchitecture, "model.name", "model.flavor"},
    {"model_config.name", Nothing, "the name of the sizes"},
    {"model_config.hf_config.", Nothing, "the origin of the sizes"},
    {"model_config.block_size", ToModel, kArchitecture, "max_position_embeddings"},
    {"model_config.vocab_size", ToModel, kArchitecture, "vocab_size"},
    {"model_config.padding_multiple", Nothing, "padded_vocab_size is the size of the vocabulary, if given"},
    {"model_config.padded_vocab_size", ToModel, kArchitecture, "vocab_size"},
    {"model_config.n_layer", ToModel, kArchitecture, "num_hidden_layers"},
    {"model_config.n_embd", ToModel, kArchitecture, "hidden_size"},
    {"model_config.n_head", ToModel, kArchitecture, "num_attention_heads"},
    {"model_config.n_query_groups", ToModel, kArchitecture, "num_key_value_heads"},
    {"model_config.head_size", ToModel, kArchitecture, "head_dim"},
    {"model_config.intermediate_size", ToModel, kArchitecture, "intermediate_size"},
    {"model_config.norm_eps", ToModel, kArchitecture, "rms_norm_eps"},
    {"model_config.rope_base", ToModel, kArchitecture, "rope_theta"},
    {"model_config.rope_adjustments.factor", ToModel, kArchitecture, "rope_scaling.factor"},
    {"model_config.rope_adjustments.low_freq_factor", ToModel, kArchitecture, "rope_scaling.low_freq_factor"},
    {"model_config.rope_adjustments.high_freq_factor", ToModel, kArchitecture,
     "rope_scaling.high_freq_factor"},
    {"model_config.rope_adjustments.original_max_seq_len", ToModel, kArchitecture,
     "rope_scaling.original_max_position_embeddings"},
    {"model_config.norm_qk", Rule(ToModel, Word{"true", "qwen3"}, Word{"false", ""}), kLlamaOnly,
     "model_type"},
    {"model_config.attn_bias", Rule(ToModel, Word{"true", "qwen2"}, Word{"false", ""}), kLlamaOnly,
     "model_type"},
    {"model_config.norm_class_name", Rule(ToModel, "RMSNorm"), kLlamaOnly},
    {"model_config.mlp_class_name", Rule(ToModel, "LLaMAMLP"), kLlamaOnly},
    {"model_config.rotary_percentage", Rule(ToModel, "1", "1.0"), kLlamaOnly},
    {"model_config.parallel_residual", Rule(ToModel, "false"), kLlamaOnly},
    {"model_config.bias", Rule(ToModel, "false"), kLlamaOnly},
    {"model_config.norm_qk_type", Rule(Nothing, "default"), kLlamaOnly},
    {"model_config.rope_condense_ratio", Rule(Nothing, "1"), kLlamaOnly},
    {"model_config.gelu_approximate", Nothing, "the activation is SiLU"},
    {"model_config.n_expert", Rule(Nothing, "0"), kLlamaOnly},
    {"model_config.n_expert_per_token", Rule(Nothing, "0"), kLlamaOnly},
    {"model_config.routed_scaling_factor", Nothing, "only experts have it"},
    {"model_config.norm_1", Rule(Nothing, "true"), kLlamaOnly},
    {"model_config.norm_2", Rule(Nothing, "true"), kLlamaOnly},
    {"model_config.", Rule(Nothing, "false"), kLlamaOnly},
    {"model_config", Rule(Nothing, ""), kArchitecture},
    {"model.", Rule(Nothing, ""), kArchitecture},
    {"out_dir", ToKey, "", "job.dump_folder"},
    {"precision",
     Rule(ToKey, Word{"bf16-mixed", "float32", "bfloat16"}, Word{"bf16-true", "bfloat16", "bfloat16"},
          Word{"32-true", "float32", "float32"}),
     "training.mixed_precision_param = \"bfloat16\", and model.converters for float8", "training.dtype",
     "training.mixed_precision_param"},
    {"initial_checkpoint_dir", Rule(Nothing, ""),
     "litgpt convert_from_litgpt and a Hugging Face folder: checkpoint.initial_load_path = DIR and "
     "checkpoint.initial_load_in_hf = true"},
    {"resume", Rule(InWords, "false", "true", "auto"),
     "with checkpoint.enable = true the same command resumes the run"},
    {"data", InWords, kTexts},
    {"data.", InWords, kTexts},
    {"train.save_interval", ToKey, "", "checkpoint.interval"},
    {"train.log_interval", ToKey, "in steps, as there", "metrics.log_freq"},
    {"train.global_batch_size", ToKey, "", "training.global_batch_size"},
    {"train.micro_batch_size", ToKey, "", "training.local_batch_size"},
    {"train.lr_warmup_steps", ToKey, "", "lr_scheduler.warmup_steps"},
    {"train.lr_warmup_fraction", Rule(Nothing, "0", "0.0"), "lr_scheduler.warmup_steps"},
    {"train.epochs", Rule(Nothing, ""), "training.max_tokens"},
    {"train.max_tokens", ToKey, "", "training.max_tokens"},
    {"train.max_steps", ToKey, "", "training.steps"},
    {"train.max_time", ToKey, "in seconds", "training.max_time"},
    {"train.max_seq_length", ToKey, "", "training.seq_len"},
    {"train.tie_embeddings", Rule(ToModel, "true", "false"), kTied, "tie_word_embeddings"},
    {"train.learning_rate", ToKey, "", "optimizer.lr"},
    {"train.weight_decay", ToKey, "", "optimizer.weight_decay"},
    {"train.beta1", ToKey, "", "optimizer.beta1"},
    {"train.beta2", ToKey, "", "optimizer.beta2"},
    {"train.max_norm", ToKey, "", "training.max_norm"},
    {"train.min_lr", ToQuotient, "as a share of optimizer.lr", "lr_scheduler.min_lr_factor", "optimizer.lr"},
    {"eval.interval", ToKey, "", "validation.freq"},
    {"eval.max_iters", ToKey, "steps x validation.local_batch_size samples of the job, not of each rank",
     "validation.steps"},
    {"eval.max_new_tokens", Nothing, "litgpt pretrain generates no texts"},
    {"eval.evaluate_example", Nothing, "litgpt pretrain generates no texts"},
    {"eval.initial_validation", Rule(Nothing, "false"),
     "eval --model DIR evaluates the weights before a run"},
    {"eval.final_validation", Nothing,
     "with validation.enable there is a validation after the last step, which changes no weights"},
    {"optimizer", ToKey, "AdamW or Muon", "optimizer.name"},
    {"optimizer.class_path", Rule(ToKey, Word{"torch.optim.AdamW", "AdamW"}, kAnyOther), "AdamW or Muon",
     "optimizer.name"},
    {"optimizer.init_args.lr", ToKey, "", "optimizer.lr"},
    {"optimizer.init_args.weight_decay", ToKey, "", "optimizer.weight_decay"},
    {"optimizer.init_args.eps", ToKey, "", "optimizer.eps"},
    {"optimizer.init_args.betas", ToKey, "", "optimizer.beta1", "optimizer.beta2"},
    {"optimizer.init_args.fused", Nothing, kFused},
    {"optimizer.init_args.foreach", Nothing, kFused},
    {"optimizer.init_args.capturable", Nothing, kFused},
    {"optimizer.init_args.differentiable", Rule(Nothing, "false"), "AdamW"},
    {"optimizer.init_args.maximize", Rule(Nothing, "false"), "AdamW minimizes the loss"},
    {"optimizer.init_args.amsgrad", Rule(Nothing, "false"), "AdamW"},
    {"devices", Rule(ToKey, Word{"auto", "-1"}, kAnyOther),
     "HYBRID_SHARD, Lit-GPT's strategy, shards within a node; mpirun -n N starts devices x num_nodes ranks",
     "parallelism.data_parallel_shard_degree"},
    {"strategy", InWords, kStrategy},
    {"strategy.init_args.cpu_offload", Rule(Nothing, "false"),
     "more shards, optimizer.state_dtype = \"bfloat16\" or activation_checkpoint.mode = \"full\""},
    {"strategy.", InWords, kStrategy},
    {"accelerator", Nothing, "the device is found"},
    {"num_nodes", ToKey,
     "HYBRID_SHARD has a replica on each node; jobs/submit.sh F.toml --nodes N starts them",
     "parallelism.data_parallel_replicate_degree"},
    {"tokenizer_dir", ToKey, "the tokenizer's folder; if it has a config.json, that is the architecture",
     "model.hf_assets_path"},
    {"logger_name",
     Rule(ToKey, Word{"tensorboard", "true"}, Word{"csv", ""}, Word{"wandb", ""}, Word{"mlflow", ""},
          Word{"litlogger", ""}, kAnyOther),
     kExport, "metrics.enable_tensorboard"},
    {"seed", ToKey, "", "debug.seed"},
    {"log.", Nothing, kExport},
};

constexpr FormerName kLitGptFormerNames[] = {{"model.name", "model_name"}, {"io.out_dir", "out_dir"}};

constexpr const char* kLitGptDefault = "Lit-GPT's default";

constexpr Implied kLitGptImplied[] = {
    {"(rate)", "optimizer.lr", "1e-3", kLitGptDefault},
    {"(beta2)", "optimizer.beta2", "0.999", kLitGptDefault},
    {"(weight decay)", "optimizer.weight_decay", "0.01", kLitGptDefault},
    {"(minimum rate)", "lr_scheduler.min_lr_factor", "4e-5", "Lit-GPT's default, 4e-5", "", "optimizer.lr"},
    {"(warm-up)", "lr_scheduler.warmup_steps", "2000", kLitGptDefault},
    {"(batch)", "training.global_batch_size", "512", kLitGptDefault},
    {"(microbatch)", "training.local_batch_size", "4", kLitGptDefault},
    {"(tokens)", "training.max_tokens", "3000000000000", kLitGptDefault},
    {"(saving)", "checkpoint.interval", "1000", kLitGptDefault},
    {"(validation)", "validation.freq", "1000", kLitGptDefault},
    {"(validation)", "validation.steps", "100", kLitGptDefault},
    {"(seed)", "debug.seed", "42", kLitGptDefault},
    {"(tied embeddings)", "", "", kTied},
    {"(saving)", "checkpoint.enable", "true", "Lit-GPT always saves"},
    {"(weight decay)", "optimizer.decay_all_parameters", "true", "Lit-GPT decays norms too"},
    {"(decay)", "lr_scheduler.decay_type", "cosine", "Lit-GPT's decay"},
    {"(validation)", "", "",
     "a token file of held-out texts: validation.dataset_path, and validation.enable = true"},
    {"(HYBRID_SHARD)", "parallelism.data_parallel_replicate_degree", "1",
     "Lit-GPT's default, one node, within which it shards"},
    {"(context)", "training.seq_len", "",
     "Lit-GPT trains with the model's whole context unless train.max_seq_length is set; nearest: "
     "training.seq_len, which is 2048 unless you set it"},
};

std::string_view trim(std::string_view text) {
    const std::size_t begin = std::min(text.find_first_not_of(" \r"), text.size());
    text.remove_prefix(begin);
    return text.substr(0, text.find_last_not_of(" \r") + 1);
}

/// The place of the first character in `text` outside of quotes for which `is_end(place)`, or its size. A
/// quote opens where a value may begin.
template <class IsEnd>
std::size_t find_outside_quotes(std::string_view text, IsEnd is_end) {
    char quote = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (quote == 0 && is_end(at)) return at;
        if (text[at] == quote) {
            quote = 0;
        } else if (quote == 0 && (text[at] == '"' || text[at] == '\'')) {
            const std::string_view before = trim(text.substr(0, at));
            if (before.empty() || std::string_view(":[,-").find(before.back()) != std::string_view::npos)
                quote = text[at];
        }
    }
    return text.size();
}

std::string_view without_comment(std::string_view line) {
    return line.substr(0, find_outside_quotes(line, [&](std::size_t at) {
                           return line[at] == '#' && (at == 0 || line[at - 1] == ' ');
                       }));
}

class YamlReader {
  public:
    explicit YamlReader(const std::string& path) : path_(path) {}

    std::vector<Setting> read(const std::string& text) {
        constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
        std::istringstream lines(text.substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0));
        for (std::string line; std::getline(lines, line);) {
            ++line_;
            read_line(without_comment(line));
        }
        return std::move(settings_);
    }

  private:
    struct Level {
        std::size_t indent;
        std::string key;  // the full name
    };

    [[noreturn]] void refuse(std::string_view what) const {
        throw UserError(
            "{}:{}: {}; this program reads nested maps of scalars and flat lists, as litgpt pretrain prints "
            "them",
            path_, line_, what);
    }

    std::string place() const { return fmt::format("in {}:{}", path_, line_); }

    void read_line(std::string_view line) {
        const std::string_view content = trim(line);
        if (content.empty() || content == "---" || content == "...") return;
        const std::size_t indent = line.find_first_not_of(' ');
        if (content.front() == '\t') refuse("a tab begins the line");
        if (content == "-" || content.starts_with("- ")) return read_item(indent, trim(content.substr(1)));
        while (!levels_.empty() && levels_.back().indent >= indent) levels_.pop_back();
        if (levels_.empty() && indent > 0) refuse("the line is indented without a key above it");
        read_key(indent, content);
    }

    void read_key(std::size_t indent, std::string_view content) {
        const std::size_t colon = find_outside_quotes(content, [&](std::size_t at) {
            return content[at] == ':' && (at + 1 == content.size() || content[at + 1] == ' ');
        });
        if (colon == content.size()) refuse(fmt::format("'{}' is not KEY: VALUE", content));
        const Value name = yaml_scalar(trim(content.substr(0, colon)));
        const std::string own = std::holds_alternative<std::string>(name)
                                    ? std::get<std::string>(name)
                                    : std::string(content.substr(0, colon));
        if (!levels_.empty()) drop_null(levels_.back().key);
        const std::string key = levels_.empty() ? own : levels_.back().key + "." + own;
        levels_.push_back({indent, key});
        const std::string_view text = trim(content.substr(colon + 1));
        if (text == "{}") return;
        const Value value = text.empty() ? Value() : value_of_text(text);
        settings_.push_back({key, value, is_set(value) ? std::string(text) : "null", place()});
    }

    /// The key has keys of its own, so it is no value.
    void drop_null(const std::string& key) {
        if (settings_.empty() || settings_.back().key != key) return;
        if (is_set(settings_.back().value)) refuse(fmt::format("{} has a value and keys", key));
        settings_.pop_back();
    }

    void read_item(std::size_t indent, std::string_view text) {
        if (settings_.empty() || levels_.empty() || indent < levels_.back().indent ||
            settings_.back().key != levels_.back().key)
            refuse("a list without a key");
        auto& setting = settings_.back();
        std::vector<std::string> names;
        if (auto* list = std::get_if<std::vector<std::string>>(&setting.value)) names = *list;
        if (is_set(setting.value) && names.empty())
            refuse(fmt::format("{} has a value and a list", setting.key));
        if (text.find(": ") != std::string_view::npos) refuse("a list of maps");
        names.push_back(item(text));
        setting.found = fmt::format("[{}]", fmt::join(names, ", "));
        setting.value = names;
    }

    std::string item(std::string_view text) const {
        const Value value = value_of_text(text);
        if (const auto* name = std::get_if<std::string>(&value)) return *name;
        return std::string(text);
    }

    Value value_of_text(std::string_view text) const {
        if (text.starts_with('[') && text.ends_with(']')) {
            std::vector<std::string> names;
            for (text = trim(text.substr(1, text.size() - 2)); !text.empty();) {
                const std::size_t comma = std::min(text.find(','), text.size());
                names.push_back(item(trim(text.substr(0, comma))));
                text = trim(text.substr(std::min(comma + 1, text.size())));
            }
            return names;
        }
        if (std::string_view("[{|>&*!%@`").find(text.front()) != std::string_view::npos)
            refuse(fmt::format("'{}' is a value of another kind", text));
        const bool is_quoted = text.front() == '"' || text.front() == '\'';
        if (is_quoted && (text.size() < 2 || text.find(text.front(), 1) != text.size() - 1 ||
                          text.find('\\') != std::string_view::npos))
            refuse(fmt::format("{} is not a plain quoted string", text));
        return yaml_scalar(text);
    }

    const std::string& path_;
    int line_ = 0;
    std::vector<Level> levels_;
    std::vector<Setting> settings_;
};

}  // namespace

const ForeignTable& litgpt_table() {
    static const ForeignTable kTable{"Lit-GPT",          "from-litgpt",  "model_config.",         kLitGptKeys,
                                     kLitGptFormerNames, kLitGptImplied, torchtitan_table().needs};
    return kTable;
}

Value yaml_scalar(std::string_view word) {
    const bool is_quoted =
        word.size() >= 2 && word.front() == word.back() && (word[0] == '"' || word[0] == '\'');
    if (is_quoted) return std::string(word.substr(1, word.size() - 2));
    if (word == "null" || word == "~") return {};
    if (word == "true" || word == "True") return true;
    if (word == "false" || word == "False") return false;
    const bool is_number =
        !word.empty() && std::string_view("+-.0123456789").find(word[0]) != std::string_view::npos;
    for (const ValueType type : {ValueType::Integer, ValueType::Number}) {
        const Value number = is_number ? value_from_word(type, word) : Value();
        if (is_set(number)) return number;
    }
    return std::string(word);
}

std::vector<Setting> read_yaml(const std::string& text, const std::string& path) {
    return YamlReader(path).read(text);
}

}  // namespace argosy::config
