#include "data/records.h"

#include <utility>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::data {
namespace {

/// Reads one record. Ignores the values of other keys.
class RecordEvents : public StrictJson {
  public:
    RecordEvents(std::string place, int64_t vocab_size, Record& record)
        : StrictJson(std::move(place)), vocab_size_(vocab_size), record_(record) {}

    void read_record(std::string_view line) {
        read(line);
        if (has_text_ != has_tokens_) return;
        refuse("",
               fmt::format("the record has {}; it must have exactly one of them",
                           has_text_ ? "both \"text\" and \"tokens\"" : "neither \"text\" nor \"tokens\""));
    }

  private:
    enum class In { Nothing, Text, Tokens, TokenList, Other };

    void take_key(std::string& key) override {
        if (depth() > 1) return;
        in_ = key == "text" ? In::Text : key == "tokens" ? In::Tokens : In::Other;
        if (in_ == In::Text) {
            has_text_ = true;
            record_.kind = RecordKind::Text;
        } else if (in_ == In::Tokens) {
            has_tokens_ = true;
            record_.kind = RecordKind::Tokens;
            record_.tokens.clear();
        }
    }

    void enter_object() override {
        if (depth() > 0) skip("an object");
    }
    void enter_list() override {
        if (depth() == 1 && in_ == In::Tokens) {
            in_ = In::TokenList;
        } else {
            skip("a list");
        }
    }
    void leave_list() override {
        if (depth() == 1) in_ = In::Other;
    }

    bool string(std::string& value) override {
        if (in_ != In::Text) return skip(shown(value));
        std::swap(record_.text, value);
        return true;
    }
    bool number_unsigned(uint64_t value) override {
        if (in_ != In::TokenList) return skip(std::to_string(value));
        if (value >= static_cast<uint64_t>(vocab_size_)) refuse_token(std::to_string(value));
        record_.tokens.push_back(static_cast<uint32_t>(value));
        return true;
    }
    bool number_integer(int64_t value) override {
        if (in_ == In::TokenList) refuse_token(std::to_string(value));
        return skip(std::to_string(value));
    }
    bool null() override { return skip("null"); }
    bool boolean(bool value) override { return skip(value ? "true" : "false"); }
    bool number_float(double, const std::string& text) override { return skip(text); }

    /// A value that is allowed only under another key than "text" and "tokens".
    bool skip(const std::string& value) const {
        if (depth() == 0) refuse("", "the record is not a JSON object");
        if (in_ == In::Text) refuse("", "\"text\" is not a string, but " + value);
        if (in_ == In::Tokens) refuse("", "\"tokens\" is not an array of integers, but " + value);
        if (in_ == In::TokenList) refuse("", fmt::format("token {} is not an integer", value));
        return true;
    }
    [[noreturn]] void refuse_token(const std::string& value) const {
        refuse("", fmt::format("token {} lies outside 0 .. {}", value, vocab_size_ - 1));
    }

    int64_t vocab_size_;
    Record& record_;
    In in_ = In::Nothing;
    bool has_text_ = false, has_tokens_ = false;
};

}  // namespace

const char* name(RecordKind kind) { return kind == RecordKind::Text ? "{\"text\"}" : "{\"tokens\"}"; }

void parse_record(std::string_view line, std::string place, int64_t vocab_size, Record& record) {
    RecordEvents(std::move(place), vocab_size, record).read_record(line);
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string::npos; }

bool RecordReader::next(Record& record) {
    std::string_view line;
    while (lines_.next(line)) {
        ++line_number_;
        if (is_blank(line)) continue;
        parse_record(line, place(), vocab_size_, record);
        return true;
    }
    return false;
}

std::string RecordReader::place() const { return fmt::format("{}:{}", lines_.source().name(), line_number_); }

}  // namespace argosy::data
