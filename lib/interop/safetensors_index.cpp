#include "interop/safetensors_index.h"

#include <fmt/format.h>

#include "base/error.h"
#include "interop/strict_json.h"

namespace argosy::interop {
namespace {

/// Reads the root's "weight_map" and ignores the values of other keys ("metadata").
class IndexReader : public StrictJson {
  public:
    using StrictJson::StrictJson;
    std::map<std::string, std::string> take() {
        if (!keys_.contains(kMap)) refuse("", fmt::format("\"{}\" is missing", kMap));
        return std::move(files_);
    }

  private:
    static constexpr const char* kMap = "weight_map";

    /// in_map: inside "weight_map", at depth 2. passing_over: inside any other value below the root.
    bool in_map() const { return depth_ == 2 && key_ == kMap; }
    bool passing_over() const { return depth_ >= 1 && key_ != kMap && !key_.empty(); }

    std::string where() const override { return tensor_.empty() ? "the index" : "tensor " + shown(tensor_); }

    bool pass(const std::string& what) const {
        if (!passing_over()) unexpected(what);
        return true;
    }

    bool start_object(size_t) override {
        const bool root = depth_ == 0, map = depth_ == 1 && key_ == kMap;
        if (!root && !map) pass("an object");
        ++depth_;
        return true;
    }
    bool end_object() override {
        --depth_;
        tensor_.clear();
        return true;
    }
    bool start_array(size_t) override {
        pass("a list");
        ++depth_;
        return true;
    }
    bool end_array() override {
        --depth_;
        return true;
    }

    bool key(std::string& key) override {
        if (depth_ == 1) {
            add_key(keys_, key);
            key_ = key;
        } else if (in_map()) {
            if (files_.contains(key)) refuse("tensor " + shown(key), "it is there twice");
            tensor_ = key;
        }
        return true;
    }

    bool string(std::string& value) override {
        if (!in_map()) return pass(shown(value));
        const bool beside = value.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
        if (!beside || !value.ends_with(".safetensors")) {
            refuse(where(), "its file is " + shown(value) +
                                ", which is not the name of a .safetensors file beside the index");
        }
        files_.emplace(tensor_, value);
        return true;
    }

    bool null() override { return pass("null"); }
    bool boolean(bool value) override { return pass(value ? "true" : "false"); }
    bool number_integer(int64_t value) override { return pass(std::to_string(value)); }
    bool number_unsigned(uint64_t value) override { return pass(std::to_string(value)); }
    bool number_float(double, const std::string& text) override { return pass(text); }

    int depth_ = 0;
    std::set<std::string> keys_;
    std::string key_, tensor_;
    std::map<std::string, std::string> files_;
};

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& place) {
    IndexReader reader(place);
    reader.read(text);
    return reader.take();
}

std::string safetensors_index_json(const std::map<std::string, std::string>& file_of_tensor,
                                   int64_t total_bytes) {
    const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                  {"weight_map", file_of_tensor}};
    return index.dump(2) + "\n";
}

}  // namespace argosy::interop
