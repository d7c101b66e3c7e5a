// An event-based JSON reader that validates while it reads, so that refused contents use no memory. Events
// that a derived reader does not override are refused. Also reads and writes small text files.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

namespace argosy::interop {

/// Formats a string of unknown origin for a message: quoted, printable, and of limited length.
std::string shown(std::string_view text);

class StrictJson : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit StrictJson(std::string place) : place_(std::move(place)) {}

    /// UserError, naming `place`, for contents that the reader does not accept.
    void read(std::string_view text);

  protected:
    /// `where` names the part of the text, or is empty.
    [[noreturn]] void refuse(const std::string& where, const std::string& what) const;

    /// The part of the text that is being read, for messages.
    virtual std::string where() const = 0;

    /// Adds the key to `seen`. Refuses a key that is there already.
    void add_key(std::set<std::string>& seen, const std::string& key) const;

    bool null() override { unexpected("null"); }
    bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
    bool number_integer(int64_t value) override { unexpected(std::to_string(value)); }
    bool number_unsigned(uint64_t value) override { unexpected(std::to_string(value)); }
    bool number_float(double, const std::string& text) override { unexpected(text); }
    bool string(std::string& value) override { unexpected(shown(value)); }
    bool binary(nlohmann::json::binary_t&) override { unexpected("bytes"); }
    bool start_object(size_t) override { unexpected("an object"); }
    bool end_object() override { unexpected("the end of an object"); }
    bool start_array(size_t) override { unexpected("a list"); }
    bool end_array() override { unexpected("the end of a list"); }
    bool key(std::string& value) override { unexpected("the key " + shown(value)); }
    bool parse_error(size_t position, const std::string& token,
                     const nlohmann::detail::exception& error) override;

    [[noreturn]] void unexpected(const std::string& what) const;

  private:
    std::string place_;
};

// Reads and writes small text files as a whole.

/// UserError if the file is missing, unreadable or larger than `max_bytes`.
std::string read_text(const std::filesystem::path& path, int64_t max_bytes);

/// The file is durable when write_text() returns.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace argosy::interop
