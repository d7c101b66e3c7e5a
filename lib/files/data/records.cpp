#include "data/records.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::data {
namespace {

/// Reads one record. Ignores the values of other keys.
class RecordEvents : public StrictJson {
  public:
    RecordEvents(std::string place, int64_t vocab_size, Record& record, std::string_view text_key)
        : StrictJson(std::move(place)),
          vocab_size_(vocab_size),
          record_(record),
          has_one_key_(!text_key.empty()),
          text_key_(has_one_key_ ? text_key : kTextKey) {}

    void read_record(std::string_view line) {
        record_.tokens.clear();
        record_.loss_mask.clear();
        record_.messages.clear();
        read(line);
        record_.kind = kind();
        if (record_.kind == RecordKind::Completion && !not_a_string_.empty()) refuse("", not_a_string_);
        if (record_.kind == RecordKind::Messages && !not_messages_.empty()) refuse("", not_messages_);
        if (has(In::Mask)) check_mask();
    }

  private:
    /// The value that is read, by its key.
    enum class In {
        Nothing,
        Text,
        Tokens,
        TokenList,
        Mask,
        MaskList,
        Prompt,
        Completion,
        Messages,
        MessageList,
        Message,
        Role,
        Content,
        MessageKey,
        Tools,
        Other
    };

    bool has(In key) const { return keys_ >> static_cast<int>(key) & 1; }

    RecordKind kind() const {
        const bool has_completion = has(In::Prompt) && has(In::Completion);
        std::vector<const char*> found;
        if (has(In::Text)) found.push_back("\"text\"");
        if (has(In::Tokens)) found.push_back("\"tokens\"");
        if (has_completion) found.push_back("\"completion\"");
        if (has(In::Messages)) found.push_back("\"messages\"");
        if (found.empty() && has_one_key_)
            refuse("", fmt::format("the record has no key {} (--column)", shown(text_key_)));
        if (found.empty()) {
            refuse("",
                   "the record has neither \"text\" nor \"tokens\" nor \"messages\" nor \"prompt\" with "
                   "\"completion\"; it must have exactly one of them");
        }
        if (found.size() > 1) {
            refuse("",
                   fmt::format("the record has both {} and {}; it must have exactly one of them{}", found[0],
                               found[1], has(In::Text) ? ", or --column text takes \"text\" alone" : ""));
        }
        if (has_completion) return RecordKind::Completion;
        if (has(In::Messages)) return RecordKind::Messages;
        if (has(In::Text)) return RecordKind::Text;
        return has(In::Mask) ? RecordKind::MaskedTokens : RecordKind::Tokens;
    }

    void check_mask() const {
        if (!has(In::Tokens)) refuse("", "\"loss_mask\" needs \"tokens\"");
        if (record_.loss_mask.size() == record_.tokens.size()) return;
        refuse("", fmt::format("\"loss_mask\" has {} values for {} tokens", record_.loss_mask.size(),
                               record_.tokens.size()));
    }

    void take_key(std::string& key) override {
        if (depth() == 3 && is_in_message()) {
            in_ = key == "role" ? In::Role : key == "content" ? In::Content : In::MessageKey;
            keys_ |= 1U << static_cast<int>(in_);
            message_key_ = key;
        }
        if (depth() > 1) return;
        in_ = key == text_key_      ? In::Text
              : has_one_key_        ? In::Other
              : key == "tokens"     ? In::Tokens
              : key == "loss_mask"  ? In::Mask
              : key == "prompt"     ? In::Prompt
              : key == "completion" ? In::Completion
              : key == "messages"   ? In::Messages
              : key == "tools"      ? In::Tools
                                    : In::Other;
        keys_ |= 1U << static_cast<int>(in_);
    }

    void enter_object() override {
        if (depth() == 2 && in_ == In::MessageList) {
            in_ = In::Message;
            keys_ &= ~(1U << static_cast<int>(In::Role) | 1U << static_cast<int>(In::Content));
            record_.messages.emplace_back();
        } else if (depth() > 0) {
            skip("an object");
        }
    }
    void leave_object() override {
        if (depth() != 2 || !is_in_message()) return;
        in_ = In::MessageList;
        if (!has(In::Role)) refuse_messages(message() + " has no \"role\"");
        if (!has(In::Content)) refuse_messages(message() + " has no \"content\"");
    }
    void enter_list() override {
        if (depth() == 1 && in_ == In::Tokens) {
            in_ = In::TokenList;
        } else if (depth() == 1 && in_ == In::Mask) {
            in_ = In::MaskList;
        } else if (depth() == 1 && in_ == In::Messages) {
            in_ = In::MessageList;
        } else if (depth() > 1 || in_ != In::Tools) {
            skip("a list");
        }
    }
    void leave_list() override {
        if (depth() == 1) in_ = In::Other;
    }

    bool string(std::string& value) override {
        if (in_ == In::Text) {
            std::swap(record_.text, value);
        } else if (in_ == In::Prompt) {
            std::swap(record_.prompt, value);
        } else if (in_ == In::Completion) {
            std::swap(record_.completion, value);
        } else if (in_ == In::Role) {
            std::swap(record_.messages.back().role, value);
        } else if (in_ == In::Content) {
            std::swap(record_.messages.back().content, value);
        } else {
            skip(shown(value));
        }
        return true;
    }
    bool number_unsigned(uint64_t value) override {
        if (in_ == In::MaskList && value <= 1) {
            record_.loss_mask.push_back(static_cast<uint8_t>(value));
            return true;
        }
        if (in_ != In::TokenList) return skip(std::to_string(value));
        if (value >= static_cast<uint64_t>(vocab_size_)) refuse_token(std::to_string(value));
        record_.tokens.push_back(static_cast<uint32_t>(value));
        return true;
    }
    bool number_integer(int64_t value) override {
        if (in_ == In::TokenList) refuse_token(std::to_string(value));
        return skip(std::to_string(value));
    }
    bool null() override { return in_ == In::MessageKey || in_ == In::Tools || skip("null"); }
    bool boolean(bool value) override { return skip(value ? "true" : "false"); }
    bool number_float(double, const std::string& text) override { return skip(text); }

    /// A value that is allowed only under other keys than those of records. "prompt" and "completion" may be
    /// anything in records of other kinds.
    bool skip(const std::string& value) {
        if (depth() == 0) refuse("", "the record is not a JSON object");
        if (in_ == In::Text) refuse("", shown(text_key_) + " is not a string, but " + value);
        if (in_ == In::Tokens) refuse("", "\"tokens\" is not an array of integers, but " + value);
        if (in_ == In::TokenList) refuse("", fmt::format("token {} is not an integer", value));
        if (in_ == In::Mask) refuse("", "\"loss_mask\" is not an array of 0 and 1, but " + value);
        if (in_ == In::MaskList) refuse("", fmt::format("\"loss_mask\" holds {}, not 0 or 1", value));
        if (in_ == In::Prompt || in_ == In::Completion) {
            const char* key = in_ == In::Prompt ? "prompt" : "completion";
            not_a_string_ = fmt::format("\"{}\" is not a string, but {}", key, value);
            in_ = In::Other;  // also for the values within this one
        }
        if (in_ == In::Messages) refuse_messages("\"messages\" is not a list, but " + value);
        if (in_ == In::MessageList) refuse_messages("a message is not an object, but " + value);
        if (in_ == In::Role || in_ == In::Content) {
            refuse_messages(
                fmt::format("\"{}\" of {} is not a string, but {}", message_key_, message(), value));
        }
        if (in_ == In::MessageKey)
            refuse_messages(fmt::format("{} has the key {}", message(), shown(message_key_)));
        if (in_ == In::Tools) refuse_messages("the record has \"tools\"");
        return true;
    }

    bool is_in_message() const { return in_ >= In::Message && in_ <= In::MessageKey; }
    std::string message() const { return fmt::format("message {}", record_.messages.size() - 1); }
    /// "messages" and "tools" may be anything in records of other kinds.
    void refuse_messages(const std::string& fault) {
        not_messages_ =
            fault +
            "; a message has a \"role\" and a \"content\" of text. Write conversations with tools or "
            "other parts as {\"tokens\", \"loss_mask\"} records";
        in_ = In::Other;
    }
    [[noreturn]] void refuse_token(const std::string& value) const {
        refuse("", fmt::format("token {} lies outside 0 .. {}", value, vocab_size_ - 1));
    }

    int64_t vocab_size_;
    Record& record_;
    bool has_one_key_;  // the user names the key of texts
    std::string_view text_key_;
    In in_ = In::Nothing;
    unsigned keys_ = 0;         // the keys that were read: a bit for each In
    std::string not_a_string_;  // the fault of "prompt" or "completion"
    std::string not_messages_;  // the last fault of "messages"
    std::string message_key_;
};

/// Returns the line with null in place of NaN, Infinity and -Infinity outside of strings: the line itself if
/// there are none, else `buffer`.
std::string_view without_python_numbers(std::string_view line, std::string& buffer) {
    constexpr std::array<std::string_view, 3> kNumbers = {"NaN", "-Infinity", "Infinity"};
    if (line.find(kNumbers[0]) == line.npos && line.find(kNumbers[2]) == line.npos) return line;
    bool in_string = false;
    for (size_t at = 0; at < line.size();) {
        const std::string_view rest = line.substr(at);
        const auto number =
            std::ranges::find_if(kNumbers, [&](std::string_view word) { return rest.starts_with(word); });
        if (!in_string && number != kNumbers.end()) {
            buffer += "null";
            at += number->size();
            continue;
        }
        if (rest[0] == '"') in_string = !in_string;
        const size_t size = in_string && rest[0] == '\\' ? std::min<size_t>(2, rest.size()) : 1;
        buffer += rest.substr(0, size);
        at += size;
    }
    return buffer;
}

}  // namespace

const char* name(RecordKind kind) {
    constexpr const char* kNames[] = {"{\"text\"}", "{\"tokens\"}", "{\"tokens\", \"loss_mask\"}",
                                      "{\"prompt\", \"completion\"}", "{\"messages\"}"};
    return kNames[static_cast<int>(kind)];
}

void parse_record(std::string_view line, std::string place, int64_t vocab_size, Record& record,
                  std::string_view text_key) {
    std::string buffer;
    RecordEvents(std::move(place), vocab_size, record, text_key)
        .read_record(without_python_numbers(line, buffer));
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string::npos; }

}  // namespace argosy::data
