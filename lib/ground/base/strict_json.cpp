#include "base/strict_json.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/content_kind.h"
#include "base/error.h"

namespace argosy {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxDepth = 100;  // of nested values; no file that this program reads comes near

/// A pointer to text that stores in `reached` how far the parser has read, because the library's events do
/// not name their position.
struct TextIterator {
    using iterator_category = std::forward_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    const char& operator*() const { return *at; }
    TextIterator& operator++() {
        *reached = ++at;
        return *this;
    }
    TextIterator operator++(int) { return {std::exchange(at, at + 1), reached}; }
    bool operator==(const TextIterator& other) const { return at == other.at; }

    const char* at;
    const char** reached;
};

/// The library's message without "[json.exception...] parse error at line 1, column N: " and without the
/// text that it read last, which has no limit.
std::string reason_of(std::string_view text) {
    for (const std::string_view before : {"] ", "parse error at line ", ": "})
        if (const size_t begin = text.find(before); begin != text.npos)
            text.remove_prefix(begin + before.size());
    constexpr size_t kMaxBytes = 200;
    return std::string(text.substr(0, std::min(text.find("; last read"), kMaxBytes)));
}

/// Builds a value from the events.
class ValueReader : public StrictJson {
  public:
    ValueReader(const std::string& place, const JsonEntries& entries)
        : StrictJson(place), entries_(entries) {}
    ordered_json take() { return std::move(root_); }

  private:
    /// Adds a value to the innermost open object or list. Returns it at its place.
    ordered_json& add(ordered_json value) {
        if (open_.empty()) return root_ = std::move(value);
        if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(value));
        // The key is new, so that it is appended without the search of ordered_json::operator[].
        std::vector<std::pair<const std::string, ordered_json>>& members =
            open_.back()->get_ref<ordered_json::object_t&>();
        return members.emplace_back(std::move(key_), std::move(value)).second;
    }
    bool add_value(ordered_json value) {
        add(std::move(value));
        return true;
    }

    void enter_object() override { open_.push_back(&add(ordered_json::object())); }
    void enter_list() override { open_.push_back(&add(ordered_json::array())); }
    void leave_list() override { open_.pop_back(); }
    void leave_object() override {
        const ordered_json* ended = open_.back();
        open_.pop_back();
        constexpr size_t kListDepth = 2;  // the outermost object and its list
        const bool is_entry = open_.size() == kListDepth && open_.back()->is_array() &&
                              open_.front()->is_object() && entries_.lists.contains(outermost_key_);
        if (!is_entry) return;
        entries_.take(outermost_key_, *ended);
        open_.back()->erase(open_.back()->size() - 1);
    }
    void take_key(std::string& key) override {
        if (open_.size() == 1) outermost_key_ = key;
        key_ = std::move(key);
    }

    bool null() override { return add_value(nullptr); }
    bool boolean(bool value) override { return add_value(value); }
    bool number_integer(int64_t value) override { return add_value(value); }
    bool number_unsigned(uint64_t value) override { return add_value(value); }
    bool number_float(double value, const std::string&) override { return add_value(value); }
    bool string(std::string& value) override { return add_value(std::move(value)); }

    const JsonEntries& entries_;
    ordered_json root_;
    std::vector<ordered_json*> open_;
    std::string key_, outermost_key_;
};

}  // namespace

std::string shown(std::string_view text) {
    constexpr size_t kMaxBytes = 100;
    const bool cut = text.size() > kMaxBytes;
    constexpr bool kAscii = true;
    return json(text.substr(0, kMaxBytes)).dump(-1, ' ', kAscii, json::error_handler_t::replace) +
           (cut ? "..." : "");
}

std::string shown_value(const ordered_json& value) {
    if (value.is_structured()) return value.is_array() ? "a list" : "an object";
    return value.is_string() ? shown(value.get_ref<const std::string&>()) : value.dump();
}

bool is_utf8(std::string_view text) {
    try {
        json(text).dump();
        return true;
    } catch (const json::type_error&) {
        return false;
    }
}

void StrictJson::read(std::string_view text) {
    text_ = text;
    reached_ = text.data();
    open_.clear();
    // The library takes a zero byte for the end of the text and ignores the rest.
    if (const size_t zero = text.find('\0'); zero != text.npos) {
        // A line that a crash cut may end with zeros, and is no binary file.
        const std::string kind = kind_of_content(text);
        if (!kind.empty() && kind != kBinaryFile) throw UserError("{} is {}, not JSON", place_, kind);
        reached_ += zero + 1;
        refuse("", "a zero byte at " + position());
    }
    const TextIterator begin{text.data(), &reached_}, end{text.data() + text.size(), &reached_};
    json::sax_parse(begin, end, static_cast<json::json_sax_t*>(this));
}

void StrictJson::refuse(const std::string& where, const std::string& what) const {
    throw UserError("{}: {}{}{}", place_, where, where.empty() ? "" : ": ", what);
}

void StrictJson::unexpected(const std::string& what) const {
    refuse(where(), what + " does not belong there");
}

/// The position of the last byte that was read, counted from 1.
std::string StrictJson::position() const {
    const std::string_view before(text_.data(), reached_ - text_.data());
    const auto num_lines = std::ranges::count(before.substr(0, before.size() - !before.empty()), '\n');
    const size_t line_begin = num_lines == 0 ? 0 : before.rfind('\n', before.size() - 2) + 1;
    const std::string byte = fmt::format("byte {}", before.size() - line_begin);
    return num_lines == 0 ? byte : fmt::format("line {}, {}", num_lines + 1, byte);
}

void StrictJson::begin(const char* what) {
    if (open_.size() == kMaxDepth)
        refuse(where(),
               fmt::format("{} at {}: values are nested more than {} deep", what, position(), kMaxDepth));
    open_.emplace_back();
}

bool StrictJson::start_object(size_t) {
    enter_object();
    begin("an object");
    return true;
}

bool StrictJson::end_object() {
    open_.pop_back();
    leave_object();
    return true;
}

bool StrictJson::start_array(size_t) {
    enter_list();
    begin("a list");
    return true;
}

bool StrictJson::end_array() {
    open_.pop_back();
    leave_list();
    return true;
}

bool StrictJson::key(std::string& value) {
    if (!open_.back().insert(value).second)
        refuse(where(),
               fmt::format("the key {} occurs twice; the second is at {}", shown(value), position()));
    take_key(value);
    return true;
}

bool StrictJson::parse_error(size_t position_of_error, const std::string& token,
                             const nlohmann::detail::exception& error) {
    reached_ = text_.data() + std::min(position_of_error, text_.size());  // without the byte after a number
    refuse(where(),
           fmt::format("bad JSON at {}, near {}: {}", position(), shown(token), reason_of(error.what())));
}

ordered_json parse_json(std::string_view text, const std::string& place, const JsonEntries& entries) {
    ValueReader reader(place, entries);
    reader.read(text);
    return reader.take();
}

}  // namespace argosy
