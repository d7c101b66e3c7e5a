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
    /// A template that was found.
    struct Source {
        std::string text, name;  // the name is the template's place in messages
        JinjaVariables names;    // of tokens, such as bos_token
        std::string fault;       // why there is no text, if there should be one
    };
    /// REQUIRES: the tokenizer outlives this.
    ChatTemplate(const Source& source, const Tokenizer& tokenizer);

    /// XXH3-128, in hex, of everything besides the tokenizer's file on which the ids depend: the template's
    /// text, the names of tokens and the special tokens.
    const std::string& digest() const { return digest_; }

    /// Appends the ids of a conversation, and for each of them 1 if it belongs to an assistant's turn, else
    /// 0. Throws UserError for a template that cannot be read, for a conversation that the template refuses,
    /// and for one without an assistant's turn.
    void encode(std::span<const ChatMessage> messages, Ids& ids, std::vector<uint8_t>& loss_mask) const;

  private:
    /// A rendering in UTF-8.
    struct Rendering {
        std::string text;
        std::vector<uint32_t> origins;  // of each byte: the message's number plus 1, or 0 for the template
    };
    /// Bytes of a rendering. The end of an assistant's turn is that of a special token.
    struct Range {
        size_t begin = 0, end = 0;
    };
    using Parts = std::vector<AddedTokenSearch::Part>;

    Rendering render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
    std::string prompt_for_assistant() const;
    std::vector<Range> find_turns(std::span<const ChatMessage> messages, const Rendering& rendering,
                                  const Parts& parts) const;
    Range find_turn(size_t message, const Range& own, const Rendering& rendering, const Parts& parts) const;
    size_t encode_text(std::string_view text, size_t begin, Ids& ids) const;

    std::string name_, digest_, fault_;  // the fault is that of a template that cannot be read
    JinjaVariables names_;
    std::unique_ptr<const JinjaTemplate> template_;  // null if there is a fault
    const Tokenizer& tokenizer_;
    AddedTokenSearch special_tokens_;
    std::string prompt_;
};

/// The chat template beside a tokenizer that open_tokenizer() made of `source`: chat_template.jinja, else
/// `chat_template` of tokenizer_config.json. Null if there is none. One that cannot be read harms no other
/// records: encode() says why.
std::unique_ptr<ChatTemplate> open_chat_template(const std::string& source, const Tokenizer& tokenizer);

}  // namespace argosy::tokenizer
