// The recorded results of tests/reference, computed by transformers. Its README defines each dataset.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "h5/file.h"
#include "model/model_spec.h"

namespace argosy::testing {

class Reference {
  public:
    explicit Reference(const std::string& name);

    /// tests/reference, or the folder that the environment names in ARGOSY_REFERENCE: other results of its
    /// script.
    static std::string folder();
    /// Its folders that have a model's weights.
    static std::vector<std::string> names_of_all();

    model::ModelSpec spec() const { return model::read_hugging_face_config(folder_); }
    uint64_t seed() const;
    std::vector<std::string> names(const std::string& group) const { return file_.links(group); }
    at::Tensor read(const std::string& dataset) const;

  private:
    std::string folder_;
    h5::File file_;
};

}  // namespace argosy::testing
