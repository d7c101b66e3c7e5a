#include "parquet/documents.h"

#include "base/error.h"

namespace argosy::parquet {

std::unique_ptr<data::DocumentReader> open_documents(const data::InputRange& range,
                                                     const std::string& /*column*/) {
    throw UserError(
        "cannot read {}: this build cannot read Parquet. Install pyarrow and build again (README.md), or "
        "convert the file to JSONL",
        range.path.string());
}

}  // namespace argosy::parquet
