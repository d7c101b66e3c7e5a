#include "tokenizer/chat_template.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemplateName = "chat_template.jinja";
constexpr int64_t kMaxTemplateBytes = 1 << 28;  // also of tokenizer_config.json

constexpr std::array kRoles = {"system", "user", "assistant"};

void check_messages(std::span<const ChatMessage> messages) {
    if (messages.empty()) throw UserError("\"messages\" is empty");
    if (messages.size() >= kMaxOrigin)
        throw UserError("there are {} messages; a conversation may have {}", messages.size(), kMaxOrigin - 1);
    for (const ChatMessage& message : messages) {
        if (std::ranges::find(kRoles, message.role) != kRoles.end()) continue;
        throw UserError(
            "the role {} is none of \"system\", \"user\" and \"assistant\"; rename it, or write "
            "conversations with tools as {{\"tokens\", \"loss_mask\"}} records",
            shown(message.role));
    }
    if (std::ranges::none_of(messages, [](const auto& message) { return message.role == "assistant"; }))
        throw UserError("no message has the role \"assistant\", so no token would count in the loss");
}

/// The template of tokenizer_config.json: a text, or a list with one of the name `default`.
std::string template_of(const JsonField& field) {
    if (field.is_null() || field.is_string()) return field.is_null() ? "" : field.string();
    for (const JsonField& entry : field.list())
        if (entry["name"].string() == "default") return entry["template"].string();
    field.refuse("has no template of the name \"default\"; write the one to use to chat_template.jinja");
}

/// Adds bos_token and its like, of which the earlier file's count.
void add_token_names(const JsonField& root, JinjaVariables& variables) {
    for (const auto& [key, value] : root.members()) {
        if (!key.ends_with("_token")) continue;
        const JsonField name = value.is_object() ? root[key]["content"] : root[key];
        if (name.is_string()) variables.try_emplace(key, with_origin(name.string()));
    }
}

/// Finds the template, and the names of tokens, in the files of a folder.
void find_source(const fs::path& folder, ChatTemplate::Source& source) {
    source.name = (folder / kTemplateName).string();
    if (fs::exists(source.name)) source.text = read_text(source.name, kMaxTemplateBytes);
    for (const char* file : {kConfigName, kMapName}) {
        const std::string path = (folder / file).string();
        if (!fs::exists(path)) continue;
        const nlohmann::ordered_json json = parse_json(read_text(path, kMaxTemplateBytes), path);
        const JsonField root(json, path);
        add_token_names(root, source.names);
        if (!source.text.empty() || file != kConfigName) continue;
        source.name = path + ", chat_template";
        source.text = template_of(root["chat_template"]);
    }
}

std::string digest_of_all(const ChatTemplate::Source& source, const std::vector<AddedToken>& special_tokens) {
    nlohmann::ordered_json all = {source.text};
    for (const auto& [key, name] : source.names)
        all.push_back({key, std::vector<uint32_t>(name.text->begin(), name.text->end())});
    for (const AddedToken& token : special_tokens)
        all.push_back({token.content, token.id, token.single_word, token.lstrip, token.rstrip});
    return digest_of(json_text(all));
}

/// The limit of a rendering (JinjaTemplate::render), far above the needs of templates in use.
int64_t limit_for(std::span<const ChatMessage> messages) {
    int64_t limit = 1'000'000;
    for (const ChatMessage& message : messages) limit += 10'000 + 200 * std::ssize(message.content);
    return limit;
}

}  // namespace

ChatTemplate::ChatTemplate(const Source& source, const Tokenizer& tokenizer)
    : name_(source.name),
      digest_(digest_of_all(source, tokenizer.info().special_tokens)),
      fault_(source.fault),
      names_(source.names),
      tokenizer_(tokenizer),
      special_tokens_(tokenizer.info().special_tokens) {
    try {
        if (fault_.empty()) template_ = std::make_unique<JinjaTemplate>(source.text, name_);
    } catch (const UserError& error) {
        fault_ = error.what();
    }
    prompt_ = prompt_for_assistant();
}

ChatTemplate::Rendering ChatTemplate::render(std::span<const ChatMessage> messages,
                                             bool add_generation_prompt) const {
    if (!template_) throw UserError("{}", fault_);
    std::vector<JinjaValue> list;
    for (const ChatMessage& message : messages) {
        const auto origin = static_cast<uint32_t>(list.size() + 1);
        list.emplace_back(std::map<std::string, JinjaValue>{
            {"role", with_origin(message.role)}, {"content", with_origin(message.content, origin)}});
    }
    JinjaVariables variables = names_;
    variables["messages"] = std::move(list);
    variables["add_generation_prompt"] = add_generation_prompt;
    variables["tools"] = variables["documents"] = JinjaValue::none();
    Rendering rendering;
    for (const char32_t character : template_->render(variables, limit_for(messages))) {
        append_utf8(rendering.text, character % kOrigin);
        rendering.origins.resize(rendering.text.size(), character / kOrigin);
    }
    return rendering;
}

/// Returns the text that the template writes before an assistant's turn. Empty if it writes that text with
/// each message alone.
std::string ChatTemplate::prompt_for_assistant() const {
    const std::array messages = {ChatMessage{"user", "a"}};
    try {
        const std::string without = render(messages, false).text, with = render(messages, true).text;
        return with.starts_with(without) ? with.substr(without.size()) : "";
    } catch (const UserError&) {  // a conversation is refused with its own message
        return "";
    }
}

/// `own` reaches from the message's first byte behind its last one. The time is that of the turn's bytes and
/// of the template's text before it, so that of all turns grows with the rendering.
ChatTemplate::Range ChatTemplate::find_turn(size_t message, const Range& own, const Rendering& rendering,
                                            const Parts& parts) const {
    if (own.end == 0) {
        throw UserError(
            "the assistant's message {} leaves no text in the chat template's rendering ({}); remove the "
            "turn, or give it a text",
            message, name_);
    }
    const std::vector<uint32_t>& origins = rendering.origins;
    size_t templates = own.begin;
    while (templates > 0 && origins[templates - 1] == 0) --templates;
    const std::string_view before = std::string_view(rendering.text).substr(templates, own.begin - templates);
    const size_t prompt = prompt_.empty() ? before.npos : before.rfind(prompt_);
    Range turn{.begin = prompt == before.npos ? own.begin : templates + prompt + prompt_.size()};
    const auto end_of = [&](const auto& part) -> size_t {
        return part.text.data() + part.text.size() - rendering.text.data();
    };
    auto end = std::ranges::upper_bound(parts, own.end, {}, end_of);
    while (end != parts.end() && end->token == nullptr) ++end;
    if (end != parts.end()) turn.end = end_of(*end);
    const auto is_templates_or_own = [&](uint32_t origin) { return origin == 0 || origin == message + 1; };
    const auto at = [&](size_t byte) { return origins.begin() + static_cast<std::ptrdiff_t>(byte); };
    if (turn.end > 0 && std::all_of(at(turn.begin), at(turn.end), is_templates_or_own)) return turn;
    throw UserError(
        "no special token of the tokenizer '{}' ends the assistant's message {} in the chat template's "
        "rendering ({}), so a model could not learn to end its turn: template and tokenizer do not fit each "
        "other",
        tokenizer_.info().name, message, name_);
}

std::vector<ChatTemplate::Range> ChatTemplate::find_turns(std::span<const ChatMessage> messages,
                                                          const Rendering& rendering,
                                                          const Parts& parts) const {
    std::vector<Range> ranges(messages.size() + 1), turns;  // ranges by origin
    for (size_t byte = 0; byte < rendering.origins.size(); ++byte) {
        Range& range = ranges[rendering.origins[byte]];
        if (range.end == 0) range.begin = byte;
        range.end = byte + 1;
    }
    for (size_t i = 0; i < messages.size(); ++i)
        if (messages[i].role == "assistant") turns.push_back(find_turn(i, ranges[i + 1], rendering, parts));
    std::ranges::sort(turns, {}, &Range::begin);
    return turns;
}

/// Encodes a text between special tokens. Returns the number of first tokens that the text has in common with
/// its first `begin` bytes alone: they hold nothing behind them.
size_t ChatTemplate::encode_text(std::string_view text, size_t begin, Ids& ids) const {
    const auto size = std::ssize(ids);
    tokenizer_.encode_plain(text, ids);
    if (begin == 0) return 0;
    if (begin >= text.size()) return std::ssize(ids) - size;
    Ids before;
    tokenizer_.encode_plain(text.substr(0, begin), before);
    return std::ranges::mismatch(before, std::span(ids).subspan(size)).in1 - before.begin();
}

void ChatTemplate::encode(std::span<const ChatMessage> messages, Ids& ids,
                          std::vector<uint8_t>& loss_mask) const {
    check_messages(messages);
    const Rendering rendering = render(messages, false);
    std::vector<bool> is_template;
    for (const uint32_t origin : rendering.origins) is_template.push_back(origin == 0);
    Parts parts;
    special_tokens_.split(rendering.text, parts, &is_template);
    const std::vector<Range> turns = find_turns(messages, rendering, parts);
    auto turn = turns.begin();
    for (const auto& part : parts) {
        const size_t begin = part.text.data() - rendering.text.data(), end = begin + part.text.size();
        while (turn != turns.end() && turn->end <= begin) ++turn;
        const size_t counted_from = turn == turns.end() ? end : std::clamp(turn->begin, begin, end);
        if (part.token == nullptr) {
            loss_mask.resize(loss_mask.size() + encode_text(part.text, counted_from - begin, ids), 0);
        } else if (part.token->id >= tokenizer_.info().vocab_size) {
            throw UserError("the chat template ({}) writes {}, which the tokenizer '{}' does not have", name_,
                            shown(part.token->content), tokenizer_.info().name);
        } else {
            ids.push_back(part.token->id);
            if (counted_from == end) loss_mask.push_back(0);
        }
        loss_mask.resize(ids.size(), 1);
    }
}

std::unique_ptr<ChatTemplate> open_chat_template(const std::string& source, const Tokenizer& tokenizer) {
    if (source == kBytes) return nullptr;
    const fs::path folder = fs::is_directory(source) ? fs::path(source) : folder_of(source);
    ChatTemplate::Source found;
    try {
        find_source(folder, found);
    } catch (const UserError& error) {
        found.fault = error.what();
    }
    if (found.text.empty() && found.fault.empty()) return nullptr;
    return std::make_unique<ChatTemplate>(found, tokenizer);
}

}  // namespace argosy::tokenizer
