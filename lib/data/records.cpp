#include "data/records.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/output.h"
#include "base/program.h"
#include "base/raw_file.h"
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

/// Reads from `descriptor` as read() does, but waits for bytes no longer than a stop request takes: EINTR
/// then. read() alone would sleep on, if the signal arrived just before it.
ssize_t read_unless_stopped(void* descriptor, char* bytes, size_t size) {
    constexpr int kMillisecondsBetweenLooks = 100;
    const int number = static_cast<Descriptor*>(descriptor)->number();
    pollfd waited{.fd = number, .events = POLLIN, .revents = 0};
    while (poll(&waited, 1, kMillisecondsBetweenLooks) == 0 && !stop_requested()) {
    }
    if (!stop_requested()) return read(number, bytes, size);
    errno = EINTR;
    return -1;
}

int close_descriptor(void* descriptor) {
    delete static_cast<Descriptor*>(descriptor);
    return 0;
}

}  // namespace

const char* name(RecordKind kind) { return kind == RecordKind::Text ? "{\"text\"}" : "{\"tokens\"}"; }

RecordReader::RecordReader(std::filesystem::path path, int64_t vocab_size)
    : path_(std::move(path)), vocab_size_(vocab_size) {
    Descriptor input;
    if (is_standard_stream(path_)) {
        path_ = "stdin";
        input = Descriptor(dup(STDIN_FILENO));
    } else {
        std::error_code unknown;  // opening the file reports why
        if (std::filesystem::is_directory(path_, unknown))
            throw UserError("cannot read {}: it is a folder", path_.string());
        // O_NONBLOCK: a pipe opens before it has a writer. read_unless_stopped() waits for one.
        input = Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    }
    if (input.number() < 0) throw UserError("cannot open {}: {}", path_.string(), std::strerror(errno));
    const cookie_io_functions_t functions{
        .read = read_unless_stopped, .write = nullptr, .seek = nullptr, .close = close_descriptor};
    file_.reset(fopencookie(new Descriptor(std::move(input)), "r", functions));
}

bool RecordReader::next(Record& record) {
    while (next_line()) {
        ++line_number_;
        if (line_.view().find_first_not_of(" \t\r\n") == std::string::npos) continue;
        parse(record);
        return true;
    }
    return false;
}

bool RecordReader::next_line() {
    const ssize_t size = ::getline(&line_.text, &line_.capacity, file_.get());
    throw_if_stop_requested();
    if (size < 0 && !std::feof(file_.get())) {
        throw RunError("cannot read {} beyond line {}", path_.string(), line_number_);
    }
    line_.size = std::max<ssize_t>(size, 0);
    return size >= 0;
}

std::string RecordReader::place() const { return fmt::format("{}:{}", path_.string(), line_number_); }

void RecordReader::parse(Record& record) const {
    RecordEvents(place(), vocab_size_, record).read_record(line_.view());
}

}  // namespace argosy::data
