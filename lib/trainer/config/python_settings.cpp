// The settings of TorchTitan's configurations of Python under the names of its TOML files: what a list or a
// class says there, a key says here.
#include <algorithm>
#include <cctype>
#include <map>

#include "config/arrival.h"

namespace argosy::config {
namespace {

constexpr std::string_view kLayers = "model_spec.model.layers.";
/// Groups of parameters: a group's number follows, and a dot.
constexpr std::string_view kGroups = "optimizer.param_groups.";

class PythonSettings {
  public:
    explicit PythonSettings(std::vector<Setting> settings) : all_(std::move(settings)) {}

    std::vector<Setting> named() {
        join_layers();
        name_optimizer();
        name_recomputation();
        name_batch();
        name_converters();
        return std::move(all_);
    }

  private:
    const Setting* find(std::string_view key) const {
        const auto found = std::ranges::find(all_, key, &Setting::key);
        return found == all_.end() ? nullptr : &*found;
    }
    int64_t integer(std::string_view key, int64_t otherwise) const {
        const Setting* setting = find(key);
        const auto* value = setting ? std::get_if<int64_t>(&setting->value) : nullptr;
        return value ? *value : otherwise;
    }
    bool has(std::string_view part, std::string_view prefix = "") const {
        return std::ranges::any_of(all_, [&](const Setting& setting) {
            return setting.key.starts_with(prefix) && setting.key.find(part) != std::string::npos;
        });
    }
    void add(const std::string& key, const Value& value) {
        all_.push_back({key, value, toml_text(value), ""});
    }

    /// Layers are alike, so the keys of the first and the number of layers say them all. Unset keys say
    /// nothing.
    void join_layers() {
        std::map<std::string, std::string> first;
        int64_t num_layers = 0;
        bool differ = false;
        std::erase_if(all_, [&](Setting& setting) {
            const bool is_code = setting.found.find(" at 0x") != std::string::npos;  // the text of a function
            if (is_code || setting.key.find(".param_init") != std::string::npos) return true;
            if (setting.key.starts_with("model_spec.model.") && !is_set(setting.value)) return true;
            if (!setting.key.starts_with(kLayers)) return false;
            const std::size_t dot = setting.key.find('.', kLayers.size());
            const std::string number = setting.key.substr(kLayers.size(), dot - kLayers.size());
            if (dot == std::string::npos ||
                !std::ranges::all_of(number, [](unsigned char c) { return std::isdigit(c); }))
                return false;
            const std::string name = setting.key.substr(dot + 1);
            num_layers = std::max<int64_t>(num_layers, std::atoll(number.c_str()) + 1);
            const auto [known, is_new] = first.emplace(name, setting.found);
            setting.key = std::string(kLayers) + name;
            if (number != "0") differ |= is_new || known->second != setting.found;
            return number != "0";
        });
        if (num_layers > 0) add("model_spec.model.n_layers", num_layers);
        bool norms_heads = false;
        for (const Setting& setting : all_) {
            const bool is_in_layer = setting.key.starts_with("model_spec.model.layer");
            differ |= is_in_layer && setting.key.ends_with(".bias") && setting.value == Value(true);
            norms_heads |= is_in_layer && setting.key.find(".qk_norm") != std::string::npos &&
                           setting.value != Value(false);
        }
        const Setting* name = find("model_spec.name");
        differ |= has("", "model_spec.model.dim") && name && norms_heads != (name->value == Value("qwen3"));
        // Since June 2026 a token attends to its own document alone. Before, a key says it.
        if (first.contains("attention.n_heads") && !first.contains("attention.attn_mask_type") &&
            !first.contains("attention.mask_type"))
            add("model_spec.model.layers.attention.attn_mask_type", "block_causal");
        if (differ) add("model_spec.model.layers_differ", true);
    }

    /// The numbers of the groups with an optimizer, in order; no number has two digits.
    std::string groups_of(std::string_view optimizer) const {
        std::string numbers;
        for (const Setting& setting : all_) {
            if (setting.key.starts_with(kGroups) && setting.key.ends_with(".optimizer_name") &&
                setting.value == Value(std::string(optimizer)))
                numbers += setting.key[kGroups.size()];
        }
        return numbers;
    }

    /// One group of all parameters, or one for Muon and one for the rest.
    void name_optimizer() {
        const std::string muon = groups_of("Muon"), adamw = groups_of("AdamW");
        const Setting* pattern = find(std::string(kGroups) + "0.pattern");
        const bool is_alone = pattern && pattern->value == Value(".*") && muon.size() + adamw.size() == 1;
        const bool has_both = muon.size() == 1 && adamw.size() == 1;
        if ((!is_alone && !has_both) || has("", std::string(kGroups) + (has_both ? "2." : "1."))) return;
        std::erase_if(all_, [&](Setting& setting) {
            if (!setting.key.starts_with(kGroups)) return false;
            const bool of_muon = muon == setting.key.substr(kGroups.size(), 1);
            const std::string name = setting.key.substr(kGroups.size() + 2),
                              group = of_muon    ? "optimizer.muon."
                                      : has_both ? "optimizer.adamw."
                                                 : "optimizer.";
            constexpr std::string_view kConstants = "optimizer_kwargs.";
            setting.key = name == "optimizer_name"       ? "optimizer.name"
                          : name.starts_with(kConstants) ? group + name.substr(kConstants.size())
                                                         : group + name;
            return (name == "pattern" && is_alone) || (name == "optimizer_name" && has_both && !of_muon) ||
                   !is_set(setting.value);
        });
        if (muon.empty()) return;
        // torch.optim.Muon's defaults, where those here are others
        if (!find("optimizer.muon.lr")) add("optimizer.muon.lr", 1e-3);
        if (has_both && !find("optimizer.adamw.lr")) add("optimizer.adamw.lr", 1e-3);
        if (!find("optimizer.muon.adjust_lr_fn")) add("optimizer.muon.adjust_lr_fn", "original");
    }

    void name_recomputation() {
        const std::string mode = "activation_checkpoint.mode";
        if (const Setting* whole = find("activation_checkpoint"); whole && !is_set(whole->value)) {
            std::erase_if(all_,
                          [](const Setting& setting) { return setting.key == "activation_checkpoint"; });
            add(mode, "none");
        } else if (has("", "activation_checkpoint.") && !find(mode)) {
            add(mode, find("activation_checkpoint.force_recompute_mm_shapes_by_fqns") ? "selective"
                      : find("activation_checkpoint.memory_budget")                   ? "memory_budget"
                                                                                      : "full");
        }
    }

    /// Since August 2026 batches count tokens, those of a pipeline by its microbatches. Validation has the
    /// batches of training.
    void name_batch() {
        const int64_t tokens = integer("training.num_tokens_per_microbatch_per_dp_rank", 0);
        const int64_t length = integer("training.max_context_length", integer("training.seq_len", 0));
        const int64_t samples =
            tokens > 0 && length > 0 ? tokens / length : integer("training.local_batch_size", 0);
        if (length > 0 && has("", "validator.")) add("validation.seq_len", length);
        if (samples > 0 && has("", "validator.")) add("validation.local_batch_size", samples);
        const int64_t microbatches = integer("parallelism.num_pp_microbatches", 1);
        if (tokens == 0 || samples == 0 || integer("parallelism.pipeline_parallel_degree", 1) == 1) return;
        add("parallelism.pipeline_parallel_microbatch_size", samples);
        for (Setting& setting : all_) {
            if (setting.key == "training.num_tokens_per_microbatch_per_dp_rank")
                setting.value = tokens * microbatches;
        }
    }

    /// Until April 2026 converters are a list; since then layers have other kinds of products.
    void name_converters() {
        constexpr std::string_view kConverters = "model_converters.converters.";
        std::vector<std::string> names;
        for (Setting& setting : all_) {
            if (!setting.key.starts_with(kConverters)) continue;
            const std::string name = setting.key.substr(setting.key.rfind('.') + 1);
            const bool is_mx =
                has("mxfp8_dim1_cast_kernel_choice", setting.key.substr(0, setting.key.rfind('.')));
            const std::string converter = is_mx ? "quantize.linear.mx" : "quantize.linear.float8";
            if (std::ranges::find(names, converter) == names.end()) names.push_back(converter);
            setting.key = converter + "." + name;
        }
        const bool casts = has("._torchao_config", kLayers),
                   casts_head = has("._torchao_config", "model_spec.model.lm_head.");
        std::erase_if(all_, [](const Setting& setting) {
            return setting.key.find("._torchao_config") != std::string::npos;
        });
        if (casts) {
            names.push_back("quantize.linear.float8");
            add("quantize.linear.float8.recipe_name", "rowwise");  // TorchTitan's default, which no key says
            if (!casts_head) add("quantize.linear.float8.filter_fqns", std::vector<std::string>{"output"});
        }
        if (!names.empty()) add("model.converters", names);
    }

    std::vector<Setting> all_;
};

}  // namespace

std::vector<Setting> named_python(std::vector<Setting> printed) {
    return PythonSettings(std::move(printed)).named();
}

}  // namespace argosy::config
