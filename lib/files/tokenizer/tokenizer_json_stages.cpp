#include <algorithm>

#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/tokenizer_json.h"

namespace argosy::tokenizer {
namespace {

const std::string& type_of(const JsonField& stage) { return stage["type"].string(); }

[[noreturn]] void refuse_type(const JsonField& stage, const char* supported) {
    stage["type"].refuse("is " + stage["type"].shown() + "; supported are " + supported);
}

/// The pattern that matches a text itself.
std::string escaped(const std::string& text) {
    std::string pattern;
    for (const char byte : text) {
        if (byte > ' ' && byte < 0x7F &&
            std::string_view("\\^$.|?*+()[]{}").find(byte) != std::string_view::npos)
            pattern += '\\';
        pattern += byte;
    }
    return pattern;
}

Split::Behavior read_behavior(const JsonField& behavior) {
    using Behavior = Split::Behavior;
    const std::string& name = behavior.string();
    if (name == "Isolated") return Behavior::Isolated;
    if (name == "Removed") return Behavior::Removed;
    if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
    if (name == "MergedWithNext") return Behavior::MergedWithNext;
    if (name == "Contiguous") return Behavior::Contiguous;
    behavior.refuse("is " + behavior.shown() + ", which is not supported");
}

/// Why a pattern cannot be read is said with the key.
std::shared_ptr<const Pattern> make_pattern(const std::string& expression, const JsonField& field) {
    return std::make_shared<const Pattern>(expression, field.place());
}

Split read_split(const JsonField& stage) {
    stage.allow_only({"type", "pattern", "behavior", "invert"});
    const JsonField pattern = stage["pattern"];
    const bool is_regex = pattern.only_key({"Regex", "String"}) == "Regex";
    const std::string expression = is_regex ? pattern["Regex"].string() : escaped(pattern["String"].string());
    return {.pattern = make_pattern(expression, pattern),
            .behavior = read_behavior(stage["behavior"]),
            .invert = stage["invert"].boolean(false)};
}

Split read_digits(const JsonField& stage) {
    stage.allow_only({"type", "individual_digits"});
    const bool individual = stage["individual_digits"].boolean(false);
    return {.pattern = make_pattern(R"(\p{N})", stage),
            .behavior = individual ? Split::Behavior::Isolated : Split::Behavior::Contiguous};
}

/// A text's ids do not depend on trim_offsets.
void check_byte_level(const JsonField& stage) {
    stage.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) stage[key].boolean(true);
}

Split read_byte_level(const JsonField& stage) {
    check_byte_level(stage);
    return {.pattern = stage["use_regex"].boolean(true) ? make_pattern(kGpt2Pattern, stage) : nullptr,
            .add_prefix_space = stage["add_prefix_space"].boolean(true)};
}

/// The stages of a pre-tokenizer, in order.
void flatten(const JsonField& stage, std::vector<JsonField>& stages) {
    if (type_of(stage) != "Sequence") return stages.push_back(stage);
    stage.allow_only({"type", "pretokenizers"});
    for (const JsonField& inner : stage["pretokenizers"].list()) flatten(inner, stages);
}

/// A template of one text: {"SpecialToken"} and {"Sequence"} entries.
void read_template(const JsonField& stage, Ids& prefix, Ids& suffix) {
    stage.allow_only({"type", "single", "pair", "special_tokens"});
    Ids before, after;
    size_t num_texts = 0;
    for (const JsonField& entry : stage["single"].list()) {
        const std::string& kind = entry.only_key({"SpecialToken", "Sequence"});
        const JsonField part = entry[kind];
        part.allow_only({"id", "type_id"});
        if (kind == "Sequence") {
            if (part["id"].string() != "A") part["id"].refuse("must be \"A\", the one text");
            ++num_texts;
            continue;
        }
        const JsonField token = stage["special_tokens"][part["id"].string()];
        if (token.is_null()) part["id"].refuse("names a token that special_tokens lacks");
        token.allow_only({"id", "ids", "tokens"});
        for (const JsonField& id : token["ids"].list())
            (num_texts == 0 ? before : after).push_back(read_id(id));
    }
    if (num_texts != 1) stage["single"].refuse("must hold the text once");
    prefix = before;
    suffix = after;
}

}  // namespace

bool read_normalizer(const JsonField& normalizer) {
    if (normalizer.is_null()) return false;
    if (type_of(normalizer) == "NFC") {
        normalizer.allow_only({"type"});
        return true;
    }
    if (type_of(normalizer) != "Sequence") refuse_type(normalizer, "NFC and Sequence");
    normalizer.allow_only({"type", "normalizers"});
    bool is_nfc = false;
    for (const JsonField& inner : normalizer["normalizers"].list()) is_nfc |= read_normalizer(inner);
    return is_nfc;
}

std::vector<Split> read_pre_tokenizer(const JsonField& pre_tokenizer) {
    std::vector<JsonField> stages;
    flatten(pre_tokenizer, stages);
    std::vector<Split> splits;
    for (size_t i = 0; i < stages.size(); ++i) {
        const JsonField& stage = stages[i];
        const bool is_byte_level = type_of(stage) == "ByteLevel";
        if (is_byte_level != (i + 1 == stages.size()))
            pre_tokenizer.refuse("must end with ByteLevel, and have it only there");
        if (is_byte_level) {
            splits.push_back(read_byte_level(stage));
        } else if (type_of(stage) == "Split") {
            splits.push_back(read_split(stage));
        } else if (type_of(stage) == "Digits") {
            splits.push_back(read_digits(stage));
        } else {
            refuse_type(stage, "ByteLevel, Split, Digits and Sequence");
        }
    }
    if (stages.empty()) pre_tokenizer.refuse("must end with ByteLevel");
    if (!splits.back().pattern && !splits.back().add_prefix_space) splits.pop_back();
    return splits;
}

void check_decoder(const JsonField& decoder) {
    if (decoder.is_null()) decoder.refuse("is missing; supported is ByteLevel");
    if (type_of(decoder) != "ByteLevel") refuse_type(decoder, "ByteLevel");
    check_byte_level(decoder);
}

void read_post_processor(const JsonField& post_processor, Ids& prefix, Ids& suffix) {
    if (post_processor.is_null()) return;
    const std::string& type = type_of(post_processor);
    if (type == "ByteLevel") {
        check_byte_level(post_processor);  // only changes the offsets of tokens in the text
    } else if (type == "TemplateProcessing") {
        if (!prefix.empty() || !suffix.empty()) post_processor.refuse("is a second template");
        read_template(post_processor, prefix, suffix);
    } else if (type == "Sequence") {
        post_processor.allow_only({"type", "processors"});
        for (const JsonField& inner : post_processor["processors"].list())
            read_post_processor(inner, prefix, suffix);
    } else {
        refuse_type(post_processor, "ByteLevel, TemplateProcessing and Sequence");
    }
}

}  // namespace argosy::tokenizer
