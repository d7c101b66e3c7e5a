// The families of models as Hugging Face's config.json names them. Only the sources that read and write the
// file use this header.
#pragma once

#include <cstdint>

namespace argosy::model {

struct Family {
    const char *name, *model_type, *architecture;
    int64_t max_context;     // transformers' default if config.json has none
    const char* other_keys;  // keys of the family's configuration that not every family has
};
inline constexpr const char* kQwenKeys = " sliding_window max_window_layers use_sliding_window";
inline constexpr Family kFamilies[] = {
    {"llama3", "llama", "LlamaForCausalLM", 2048, " pretraining_tp"},
    {"mistral", "mistral", "MistralForCausalLM", 131072, " sliding_window"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", 32768, kQwenKeys},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", 32768, kQwenKeys}};

}  // namespace argosy::model
