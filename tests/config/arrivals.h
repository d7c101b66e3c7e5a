// What the tests of translated configurations share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "config/arrival.h"
#include "config/config_file.h"

namespace argosy::config {

inline Arrival arrival_of(ForeignProgram program, const std::string& content,
                          std::vector<std::string> words = {}, std::string torchtitan_date = {}) {
    const ConfigFile file(content);
    return translate({.program = program,
                      .path = file.path(),
                      .output = "out.toml",
                      .torchtitan_date = std::move(torchtitan_date),
                      .words = std::move(words)});
}

inline Arrival titan(const std::string& content, std::vector<std::string> words = {}) {
    return arrival_of(ForeignProgram::TorchTitan, content, std::move(words));
}

inline Arrival litgpt(const std::string& content, std::vector<std::string> words = {}) {
    return arrival_of(ForeignProgram::LitGpt, content, std::move(words));
}

/// "taken", "missing: nearest: ..." and so on, of the only key called `key`.
inline std::string fate_of(const Arrival& arrival, const std::string& key) {
    const auto found = std::ranges::find(arrival.keys, key, &ArrivedKey::key);
    if (found == arrival.keys.end()) return "no such key";
    return fmt::format("{}: {}", fate_name(found->fate), found->sentence);
}

/// The configuration that `pretrain --config` reads from the result.
inline JobConfig read_back(const Arrival& arrival) {
    const ConfigFile file(arrival_toml(arrival, {.path = "theirs"}));
    return parse_command_line({"--config", file.path()}).config;
}

inline std::vector<Setting> torchtitan_defaults() {
    std::ostringstream text;
    text << std::ifstream(ARGOSY_TORCHTITAN_KEYS).rdbuf();
    return read_yaml(text.str(), "torchtitan_keys.yaml");
}

inline std::string torchtitan_printed() {
    std::ostringstream text;
    text << std::ifstream(ARGOSY_TORCHTITAN_PRINTED).rdbuf();
    return text.str();
}

}  // namespace argosy::config
