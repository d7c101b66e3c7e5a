// The records of a file, as tests read them: one after another, with the place of each in errors.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "data/byte_source.h"
#include "data/records.h"

namespace argosy::data {

inline std::vector<Record> records_of(const std::filesystem::path& path, int64_t vocab_size) {
    LineReader lines(path);
    std::vector<Record> records;
    std::string_view line;
    for (int number = 1; lines.next(line); ++number) {
        if (is_blank(line)) continue;
        const std::string place = fmt::format("{}:{}", lines.source().name(), number);
        parse_record(line, place, vocab_size, records.emplace_back());
    }
    return records;
}

}  // namespace argosy::data
