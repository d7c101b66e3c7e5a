// A text that comes in pieces, on its way from tokens to the reader: CharacterStream completes its
// characters, StopTexts ends it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::eval {

/// Turns bytes that come in pieces into text: complete characters at once, and U+FFFD for each malformed
/// sequence, as Python's errors="replace" does.
class CharacterStream {
  public:
    /// Returns the characters that are complete.
    std::string push(std::string_view bytes);
    /// Returns what is left, as malformed.
    std::string finish();

  private:
    std::string pending_;  // the beginning of a character
};

/// Ends a text before the first of several stop texts. An end of the text that may begin a stop text is held
/// back until more has come. If stop texts overlap in the text, the result is that of cutting at each of them
/// in turn.
class StopTexts {
  public:
    /// Empty texts are left out.
    explicit StopTexts(std::vector<std::string> texts);

    /// Returns what certainly precedes a stop text.
    std::string push(std::string_view text);
    /// Returns what was held back.
    std::string finish();
    bool stopped() const { return stopped_; }

  private:
    /// The length of the longest end of `pending_` that begins a stop text.
    size_t num_held() const;

    std::vector<std::string> texts_;
    std::string pending_;
    bool stopped_ = false;
};

}  // namespace argosy::eval
