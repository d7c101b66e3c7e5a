// The chat template of a tokenizer: conversations to token ids, and which of them an assistant writes.
//
// The ids are those of transformers' apply_chat_template, with two differences. The names of special tokens
// in a message are text, so that a message cannot end its turn or begin another one. The template does not
// know the date (strftime_now), so that the same conversation makes the same ids on any day; templates that
// print a date then print one of their own.
//
// An assistant's turn begins behind the prompt for it that the template writes (add_generation_prompt), or
// with the message's text if the template writes something else there. The first special token behind the
// text ends the turn. A token that holds a part of the turn belongs to it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/jinja.h"
#include "tokenizer/tokenizer.h"

namespace argosy::tokenizer {

struct ChatMessage {
    std::string role, content;
};

/// Immutable, so any thread may call any function.
class ChatTemplate {
  public:
    /// `source` is the template's text, `name` its place for messages; `variables` are the names of tokens,
    /// such as bos_token. Throws UserError for a text that is no template. REQUIRES: the tokenizer outlives
    /// this.
    ChatTemplate(const std::string& source, std::string name, JinjaVariables variables,
                 const Tokenizer& tokenizer);

    /// XXH3-128 of the template's text, in hex.
    const std::string& digest() const { return digest_; }

    /// Appends the ids of a conversation, and for each of them 1 if it belongs to an assistant's turn, else
    /// 0. Throws UserError for a conversation that the template refuses, or without an assistant's turn.
    void encode(std::span<const ChatMessage> messages, Ids& ids, std::vector<uint8_t>& loss_mask) const;

  private:
    /// A rendering in UTF-8.
    struct Rendering {
        std::string text;
        std::vector<uint32_t> origins;  // of each byte: the message's number plus 1, or 0 for the template
    };
    struct Turn {
        size_t begin = 0, end = 0;  // in bytes; the end is that of a special token
    };
    using Parts = std::vector<AddedTokenSearch::Part>;

    Rendering render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
    std::string prompt_for_assistant() const;
    std::vector<Turn> find_turns(std::span<const ChatMessage> messages, const Rendering& rendering,
                                 const Parts& parts) const;
    Turn find_turn(size_t message, const Rendering& rendering, const Parts& parts) const;
    size_t encode_text(std::string_view text, size_t begin, Ids& ids) const;

    std::string name_, digest_;
    JinjaVariables variables_;
    JinjaTemplate template_;
    const Tokenizer& tokenizer_;
    AddedTokenSearch special_tokens_;
    std::string prompt_;
};

/// The chat template beside a tokenizer that open_tokenizer() made of `source`: chat_template.jinja, else
/// `chat_template` of tokenizer_config.json. Null if there is none.
std::unique_ptr<ChatTemplate> open_chat_template(const std::string& source, const Tokenizer& tokenizer);

}  // namespace argosy::tokenizer
