// Runs a tokenizer for the scripts beside it:
//   tokenizer_driver encode|decode TOKENIZER [END_OF_TEXT] <records >records
//   tokenizer_driver cut PATTERN <texts >lengths of the matches and of the texts between them
//   tokenizer_driver nfc <texts >texts
// A record is a uint32 and as many bytes (a text) or uint32s (ids). `info TOKENIZER` prints its
// TokenizerInfo.
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <iterator>

#include "base/program.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pattern.h"
#include "tokenizer/tokenizer.h"

namespace argosy::tokenizer {
namespace {

template <class Element>
bool read_record(std::vector<Element>& elements) {
    uint32_t size;
    if (std::fread(&size, sizeof size, 1, stdin) != 1) return false;
    elements.resize(size);
    return std::fread(elements.data(), sizeof(Element), size, stdin) == size;
}

template <class Elements>
void write_record(const Elements& elements) {
    const auto size = static_cast<uint32_t>(std::size(elements));
    std::fwrite(&size, sizeof size, 1, stdout);
    std::fwrite(std::data(elements), sizeof *std::data(elements), size, stdout);
}

void for_each_text(const std::function<void(std::string_view)>& take) {
    std::vector<char> bytes;
    while (read_record(bytes)) take({bytes.data(), bytes.size()});
}

Ids cut_lengths(const Pattern& pattern, std::string_view text) {
    Ids lengths;
    PatternSearch search(pattern, text);
    std::string_view match;
    const char* done = text.data();
    const auto add = [&](const char* end) {
        if (end != done) lengths.push_back(static_cast<uint32_t>(end - done));
        done = end;
    };
    while (search.next(match)) {
        add(match.data());
        add(match.data() + match.size());
    }
    add(text.data() + text.size());
    return lengths;
}

void print_info(const TokenizerInfo& info) {
    const auto optional = [](std::optional<uint32_t> id) { return id ? std::to_string(*id) : "null"; };
    fmt::print(R"({{"name": "{}", "digest": "{}", "vocab_size": {}, "prefix": [{}], "suffix": [{}], )"
               R"("begin_of_text": {}, "end_of_text": {}}})",
               info.name, info.digest, info.vocab_size, fmt::join(info.prefix, ", "),
               fmt::join(info.suffix, ", "), optional(info.begin_of_text), optional(info.end_of_text));
}

ExitCode run(int argc, char** argv) {
    const std::string command = argc > 1 ? argv[1] : "", source = argc > 2 ? argv[2] : "";
    std::string buffer;
    if (command == "cut") {
        const Pattern pattern(source, "the test");
        for_each_text([&](std::string_view text) { write_record(cut_lengths(pattern, text)); });
        return ExitCode::Done;
    }
    if (command == "nfc") {
        for_each_text([&](std::string_view text) { write_record(to_nfc(text, buffer)); });
        return ExitCode::Done;
    }
    const auto tokenizer = open_tokenizer(source, argc > 3 ? argv[3] : "");
    if (command == "info") {
        print_info(tokenizer->info());
    } else if (command == "encode") {
        for_each_text([&](std::string_view text) {
            Ids ids;
            tokenizer->encode(text, ids);
            write_record(ids);
        });
    } else {
        Ids ids;
        while (read_record(ids)) write_record(tokenizer->decode(ids));
    }
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy::tokenizer

int main(int argc, char** argv) {
    return argosy::run_program("tokenizer_driver", [&] { return argosy::tokenizer::run(argc, argv); });
}
