#include "data/records.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/program.h"

namespace argosy::data {
namespace {

using nlohmann::json;

/// The library's message without its "[json.exception...] parse error at line 1, column N: ".
std::string reason(const json::parse_error& error) {
    const std::string_view text = error.what();
    const size_t column = text.find(", column ");
    return std::string(column == std::string_view::npos ? text : text.substr(column + 2));
}

json parse_line(std::string_view line, const std::string& place) {
    try {
        return json::parse(line.begin(), line.end());
    } catch (const json::parse_error& error) {
        throw UserError("{}: bad JSON at {}", place, reason(error));
    }
}

void read_tokens(const json& values, int64_t vocab_size, const std::string& place,
                 std::vector<uint32_t>& tokens) {
    if (!values.is_array()) throw UserError("{}: \"tokens\" is not an array of integers", place);
    tokens.clear();
    for (const json& value : values) {
        if (!value.is_number_integer())
            throw UserError("{}: token {} is not an integer", place, value.dump());
        // The JSON library parses non-negative literals as unsigned, so no value wraps around.
        const bool inside =
            value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
        if (!inside)
            throw UserError("{}: token {} lies outside 0 .. {}", place, value.dump(), vocab_size - 1);
        tokens.push_back(value.get<uint32_t>());
    }
}

}  // namespace

const char* name(RecordKind kind) { return kind == RecordKind::Text ? "{\"text\"}" : "{\"tokens\"}"; }

RecordReader::RecordReader(std::filesystem::path path, int64_t vocab_size)
    : path_(std::move(path)), vocab_size_(vocab_size) {
    if (std::filesystem::is_directory(path_))
        throw UserError("cannot read {}: it is a folder", path_.string());
    file_.reset(std::fopen(path_.c_str(), "re"));
    throw_if_stop_requested();  // a signal may have interrupted the opening of a pipe
    if (!file_) throw UserError("cannot open {}: {}", path_.string(), std::strerror(errno));
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
    json object = parse_line(line_.view(), place());
    if (!object.is_object()) throw UserError("{}: the record is not a JSON object", place());
    const bool has_text = object.contains("text"), has_tokens = object.contains("tokens");
    if (has_text == has_tokens) {
        throw UserError("{}: the record has {}; it must have exactly one of them", place(),
                        has_text ? "both \"text\" and \"tokens\"" : "neither \"text\" nor \"tokens\"");
    }
    record.kind = has_text ? RecordKind::Text : RecordKind::Tokens;
    if (has_tokens) {
        read_tokens(object["tokens"], vocab_size_, place(), record.tokens);
    } else if (object["text"].is_string()) {
        record.text = std::move(object["text"].get_ref<std::string&>());
    } else {
        throw UserError("{}: \"text\" is not a string", place());
    }
}

}  // namespace argosy::data
