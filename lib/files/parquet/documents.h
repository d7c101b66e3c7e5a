// Reads texts from a column of a Parquet file. `with_arrow/` wraps Arrow's library of C++, which comes with
// the Python package pyarrow; `without_arrow/` is for builds without it and refuses every file.
#pragma once

#include <memory>
#include <string>

#include "data/documents.h"

namespace argosy::parquet {

/// Opens a file and returns a reader of its column `column`, whose values are strings. A row without a value
/// cannot be read. Throws UserError if the file is not Parquet or has no such column, and later if its bytes
/// are damaged.
std::unique_ptr<data::DocumentReader> open_documents(const data::InputRange& range,
                                                     const std::string& column);

}  // namespace argosy::parquet
