#include "data/synthetic_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/stop_request.h"

namespace argosy::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr const char *kKey = "argosy", *kMark = "synthetic corpus";  // the key sorts before all others

}  // namespace

bool is_synthetic(const std::filesystem::path& path) {
    return begins_with(fmt::format("{{\"{}\":\"{}\",", kKey, kMark))(path);
}

SyntheticFile::SyntheticFile(const std::filesystem::path& path) : file_(path, is_synthetic) {}

void SyntheticFile::append(nlohmann::json record) {
    throw_if_stop_requested();
    if (!marked_) record[kKey] = kMark;
    marked_ = true;
    buffer_ += record.dump() + '\n';
    if (buffer_.size() < kBufferBytes) return;
    file_.append(buffer_);
    buffer_.clear();
}

void SyntheticFile::finish() {
    file_.append(buffer_);
    buffer_.clear();
}

}  // namespace argosy::data
