// Renders chat templates: the part of the language Jinja that they use, as transformers sets it up
// (trim_blocks, lstrip_blocks). A rendering that comes to something else is refused with its line, so the
// branches for tools of a template do no harm to conversations without tools.
//
// Each character of a rendering says where it comes from, so that the text of a message is told from the
// template's own text, whatever the template does with it (trims it, cuts it, moves it into another message).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::tokenizer {

/// Characters with their origins: code point + kOrigin * origin. The origin 0 is the template's own text.
using OriginText = std::u32string;
inline constexpr uint32_t kOrigin = 1 << 21, kMaxOrigin = UINT32_MAX / kOrigin;

/// Makes characters of valid UTF-8.
OriginText with_origin(std::string_view text, uint32_t origin = 0);

/// A value of the language.
struct JinjaValue {
    enum class Kind { Undefined, None, Bool, Int, String, List, Map, Object };

    JinjaValue() = default;
    JinjaValue(bool truth) : kind(Kind::Bool), number(truth) {}
    JinjaValue(int64_t value) : kind(Kind::Int), number(value) {}
    JinjaValue(OriginText value)
        : kind(Kind::String), text(std::make_shared<const OriginText>(std::move(value))) {}
    JinjaValue(std::vector<JinjaValue> values)
        : kind(Kind::List), list(std::make_shared<const std::vector<JinjaValue>>(std::move(values))) {}
    JinjaValue(std::map<std::string, JinjaValue> members)
        : kind(Kind::Map), map(std::make_shared<std::map<std::string, JinjaValue>>(std::move(members))) {}
    static JinjaValue none();
    /// A namespace or a loop: no mapping, and equal to itself alone. Only variables hold it, so that values
    /// have no cycles.
    static JinjaValue object(std::map<std::string, JinjaValue> members);

    Kind kind = Kind::Undefined;
    int64_t number = 0;  // also of a Bool
    std::shared_ptr<const OriginText> text;
    std::shared_ptr<const std::vector<JinjaValue>> list;
    std::shared_ptr<std::map<std::string, JinjaValue>> map;  // also of an Object; shared by the copies
};

using JinjaVariables = std::map<std::string, JinjaValue>;

/// A template. Immutable, so any thread may render.
class JinjaTemplate {
  public:
    /// `name` is for messages. Throws UserError for a text that is no template.
    JinjaTemplate(std::string_view source, std::string name);
    ~JinjaTemplate();

    /// Throws UserError where the template raises an exception, needs what is not supported, or has run
    /// `limit` statements, counting each character and element of a list that they read or make as one.
    OriginText render(const JinjaVariables& variables, int64_t limit) const;

  private:
    struct Parts;
    std::unique_ptr<const Parts> parts_;
};

}  // namespace argosy::tokenizer
