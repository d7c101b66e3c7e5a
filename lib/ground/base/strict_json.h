// The only reader of JSON, and the writer of JSON whose texts come from outside. The reader refuses what the
// JSON library accepts in silence: bytes after a zero byte, a key that occurs twice in one object, and very
// deep nesting. Each error names the file and the position. `parse_json` reads values; `StrictJson` reads
// events, so that contents are checked before they use memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace argosy {

/// Formats a string of unknown origin for a message: quoted, printable, and of limited length.
std::string shown(std::string_view text);
/// Formats a value for a message. The parts of a list and of an object are not shown.
std::string shown_value(const nlohmann::ordered_json& value);

/// A derived reader overrides the events that it accepts. All other events are refused.
class StrictJson : private nlohmann::json_sax<nlohmann::json> {
  public:
    /// `place`: the file, and where needed its line, with which each error message begins.
    explicit StrictJson(std::string place) : place_(std::move(place)) {}

    /// UserError if the text is not JSON, or if the reader does not accept its contents.
    void read(std::string_view text);

  protected:
    /// `where` names the part of the text, or is empty.
    [[noreturn]] void refuse(const std::string& where, const std::string& what) const;
    [[noreturn]] void unexpected(const std::string& what) const;

    /// The part of the text that is being read, for messages.
    virtual std::string where() const { return ""; }

    /// The number of objects and lists that have begun and not ended.
    size_t depth() const { return open_.size(); }

    virtual void enter_object() { unexpected("an object"); }
    virtual void leave_object() {}
    virtual void enter_list() { unexpected("a list"); }
    virtual void leave_list() {}
    /// `key` is new in its object, and may be moved from.
    virtual void take_key(std::string& key) { unexpected("the key " + shown(key)); }

    bool null() override { unexpected("null"); }
    bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
    bool number_integer(int64_t value) override { unexpected(std::to_string(value)); }
    bool number_unsigned(uint64_t value) override { unexpected(std::to_string(value)); }
    bool number_float(double, const std::string& text) override { unexpected(text); }
    bool string(std::string& value) override { unexpected(shown(value)); }

  private:
    bool start_object(size_t) final;
    bool end_object() final;
    bool start_array(size_t) final;
    bool end_array() final;
    bool key(std::string& value) final;
    bool binary(nlohmann::json::binary_t&) final { unexpected("bytes"); }
    bool parse_error(size_t position, const std::string& token,
                     const nlohmann::detail::exception& error) final;

    void begin(const char* what);
    std::string position() const;

    std::string place_;
    std::string_view text_;
    const char* reached_ = nullptr;                      // the end of what the parser has read
    std::vector<std::unordered_set<std::string>> open_;  // the keys of each open object; none for a list
};

/// Lists of the outermost object that may be too long to keep: parse_json passes each object in them to
/// `take` and does not keep it.
struct JsonEntries {
    std::set<std::string> lists;
    std::function<void(const std::string& list, const nlohmann::ordered_json& entry)> take;
};

/// Reads a value. UserError, which begins with `place`, if the text is refused.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& place,
                                  const JsonEntries& entries = {});

/// Whether a text is UTF-8, as JSON and TOML hold it.
bool is_utf8(std::string_view text);

/// Prints a value with texts from outside, such as the names of files: bytes that are not UTF-8 become
/// U+FFFD, where dump() throws. `indent` is -1 for one line.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
    return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace argosy
