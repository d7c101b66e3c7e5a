#include "parquet/documents.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/program.h"
#include "base/raw_file.h"

namespace argosy::parquet {
namespace {

/// Refuses a file that Arrow cannot read. A Parquet file, which its first bytes tell, is damaged, unless
/// Arrow lacks what it needs, such as a codec.
[[noreturn]] void refuse(const std::string& place, const arrow::Status& status) {
    const std::string& reason = status.message();
    if (status.IsNotImplemented() || status.IsOutOfMemory())
        throw UserError("cannot read {}; Parquet's reader says: {}", place, reason);
    const RawFile file = RawFile::open_to_read(place);
    std::string first(std::min<int64_t>(file.size_bytes(), 4096), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(first)));
    if (first.empty() || first.starts_with("PAR1"))
        throw DamageError("{} is damaged or incomplete; Parquet's reader says: {}", place, reason);
    const std::string kind = kind_of_content(first);
    throw UserError("{} is {}, not Parquet; Parquet's reader says: {}", place, kind.empty() ? "text" : kind,
                    reason);
}

/// Returns the value of an Arrow result. `place` is the file.
template <class Value>
Value value_of(arrow::Result<Value> result, const std::string& place) {
    if (result.ok()) return std::move(result).ValueUnsafe();
    refuse(place, result.status());
}

class ParquetDocuments : public data::DocumentReader {
  public:
    ParquetDocuments(const data::InputRange& range, const std::string& column)
        : range_(range), place_(range.path.string()) {
        auto file = value_of(arrow::io::ReadableFile::Open(place_), place_);
        file_bytes_ = value_of(file->GetSize(), place_);
        reader_ = value_of(::parquet::arrow::OpenFile(std::move(file), arrow::default_memory_pool()), place_);
        const int index = column_index(column);
        reader_->set_batch_size(kRowsPerBatch);
        std::vector<int> row_groups(reader_->num_row_groups());
        for (size_t i = 0; i < row_groups.size(); ++i) row_groups[i] = static_cast<int>(i);
        batches_ = value_of(reader_->GetRecordBatchReader(row_groups, {index}), place_);
        num_rows_ = reader_->parquet_reader()->metadata()->num_rows();
    }

    bool next(data::DocumentBatch& batch) override {
        batch = {.kind = data::DocumentBatch::Kind::Text, .range = range_, .source = place_};
        while (batch.bytes.size() < kBatchBytes) {
            throw_if_stop_requested();
            if (rows_ == nullptr || row_of_rows_ == rows_->num_rows()) {
                rows_ = value_of(batches_->Next(), place_);
                row_of_rows_ = 0;
                if (rows_ == nullptr) break;
            }
            add(*rows_->column(0), batch);
        }
        return batch.size() > 0 || !batch.unreadable.empty();
    }

    /// Arrow does not say which bytes it has read: the share of the rows stands for the share of the bytes.
    int64_t stored_bytes_read() const override {
        return num_rows_ == 0
                   ? file_bytes_
                   : static_cast<int64_t>(static_cast<double>(file_bytes_) * static_cast<double>(row_) /
                                          static_cast<double>(num_rows_));
    }

  private:
    static constexpr int64_t kRowsPerBatch = 1024;
    static constexpr size_t kBatchBytes = 1 << 20;

    int column_index(const std::string& name) const {
        std::shared_ptr<arrow::Schema> schema;
        const arrow::Status status = reader_->GetSchema(&schema);
        if (!status.ok()) refuse(place_, status);
        const int field = schema->GetFieldIndex(name);
        if (field < 0) {
            throw UserError("{} has no column '{}' (--column); its columns are: {}", place_, name,
                            fmt::join(schema->field_names(), ", "));
        }
        const arrow::DataType* type = schema->field(field)->type().get();
        if (type->id() == arrow::Type::DICTIONARY)
            type = static_cast<const arrow::DictionaryType*>(type)->value_type().get();
        constexpr std::array kStrings = {arrow::Type::STRING, arrow::Type::LARGE_STRING,
                                         arrow::Type::STRING_VIEW};
        if (std::ranges::find(kStrings, type->id()) == kStrings.end()) {
            throw UserError("column '{}' of {} holds no strings, but {}", name, place_,
                            schema->field(field)->type()->ToString());
        }
        return leaf_index(name);
    }

    /// Parquet numbers the leaves of nested columns, and Arrow's reader selects by these numbers.
    int leaf_index(const std::string& name) const {
        const auto* schema = reader_->parquet_reader()->metadata()->schema();
        for (int i = 0; i < schema->num_columns(); ++i) {
            if (schema->Column(i)->path()->ToDotString() == name) return i;
        }
        throw UserError("{} has no plain column '{}'", place_, name);
    }

    /// Adds rows until the batch is large enough.
    void add(const arrow::Array& column, data::DocumentBatch& batch) {
        const bool is_dictionary = column.type_id() == arrow::Type::DICTIONARY;
        const auto* coded = is_dictionary ? static_cast<const arrow::DictionaryArray*>(&column) : nullptr;
        const arrow::Array& values = is_dictionary ? *coded->dictionary() : column;
        for (; row_of_rows_ < column.length() && batch.bytes.size() < kBatchBytes; ++row_of_rows_) {
            ++row_;
            const bool is_null = column.IsNull(row_of_rows_);
            const int64_t place = is_null || !coded ? row_of_rows_ : coded->GetValueIndex(row_of_rows_);
            if (is_null || values.IsNull(place)) {
                batch.unreadable.push_back(fmt::format("{}:{}: the row has no text (null)", place_, row_));
            } else {
                batch.add(text_of(values, place), row_);
            }
        }
    }

    static std::string_view text_of(const arrow::Array& strings, int64_t row) {
        switch (strings.type_id()) {
            case arrow::Type::LARGE_STRING:
                return static_cast<const arrow::LargeStringArray&>(strings).GetView(row);
            case arrow::Type::STRING_VIEW:
                return static_cast<const arrow::StringViewArray&>(strings).GetView(row);
            default:
                return static_cast<const arrow::StringArray&>(strings).GetView(row);
        }
    }

    data::InputRange range_;
    std::string place_;
    int64_t file_bytes_ = 0, num_rows_ = 0;
    int64_t row_ = 0;  // rows read so far
    std::unique_ptr<::parquet::arrow::FileReader> reader_;
    std::shared_ptr<arrow::RecordBatchReader> batches_;
    std::shared_ptr<arrow::RecordBatch> rows_;  // those that Arrow read last
    int64_t row_of_rows_ = 0;                   // the next one of them
};

}  // namespace

std::unique_ptr<data::DocumentReader> open_documents(const data::InputRange& range,
                                                     const std::string& column) {
    try {
        return std::make_unique<ParquetDocuments>(range, column);
    } catch (const ::parquet::ParquetException& error) {
        refuse(range.path.string(), arrow::Status::Invalid(error.what()));
    }
}

}  // namespace argosy::parquet
