// A configuration file that lives as long as this object, for tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace argosy::config {

class ConfigFile {
  public:
    explicit ConfigFile(const std::string& content) {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        path_ = testing::TempDir() + test->test_suite_name() + "." + test->name() + ".toml";
        std::ofstream(path_) << content;
    }
    ~ConfigFile() { std::filesystem::remove(path_); }
    ConfigFile(const ConfigFile&) = delete;
    ConfigFile& operator=(const ConfigFile&) = delete;

    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace argosy::config
