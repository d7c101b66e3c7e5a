#include "support/reference.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace argosy::testing {
namespace {

at::ScalarType scalar_type(ElementType type) {
    switch (type) {
        case ElementType::Int64:
            return at::kLong;
        case ElementType::UInt8:
            return at::kByte;
        case ElementType::Float64:
            return at::kDouble;
        default:
            return at::kFloat;
    }
}

}  // namespace

Reference::Reference(const std::string& name)
    : folder_(folder() + "/" + name), file_(h5::File::open(folder_ + ".h5")) {}

std::string Reference::folder() {
    const char* other = std::getenv("ARGOSY_REFERENCE");
    return other == nullptr ? ARGOSY_REFERENCE_FOLDER : other;
}

std::vector<std::string> Reference::names_of_all() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
        if (std::filesystem::exists(entry.path() / "model.safetensors"))
            names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
}

uint64_t Reference::seed() const { return static_cast<uint64_t>(read("seed").item<int64_t>()); }

at::Tensor Reference::read(const std::string& name) const {
    const h5::Dataset dataset = file_.open_dataset(name);
    at::Tensor values = at::empty(dataset.shape(), scalar_type(*dataset.type()));
    dataset.read({static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()});
    return values;
}

}  // namespace argosy::testing
