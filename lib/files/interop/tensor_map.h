// Formats of a model divide its elements into different tensors: rows are fused, split, stacked, cut by
// columns or in another order. A TensorMap says where the elements of one format's tensors ("ours") are in
// another's ("theirs"), for both directions: MappedSource reads ours from theirs, and for_each_part() tells a
// writer of theirs where the elements of ours go.
//
// A tensor is seen as a matrix: its last dim has the columns, all others together the rows. A tensor of one
// dim is one row.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "layout/slab.h"
#include "model/model_spec.h"

namespace argosy::interop {

/// Rows and columns of a tensor of ours that are rows and columns of a tensor of theirs.
struct Piece {
    std::string tensor;  // theirs
    int64_t their_row = 0, their_row_step = 1;
    int64_t row = 0, row_step = 1;
    int64_t num_rows = 1;
    int64_t their_column = 0, column = 0, num_columns = 1;
};

struct MappedTensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;  // each element is in one of them
    bool optional = false;      // left out if the source lacks the first piece's tensor
};

struct TensorMap {
    struct Theirs {
        std::string name;
        std::vector<int64_t> shape;
    };
    std::vector<MappedTensor> ours;
    std::vector<Theirs> theirs;

    /// Adds the tensor `name` of ours, which is a tensor of theirs.
    void add(const std::string& name, const std::string& their_name, const std::vector<int64_t>& shape,
             bool optional = false);
    const MappedTensor& at(const std::string& name) const;  // REQUIRES: it is one of ours
};

/// The piece that is the whole of `tensor`, a tensor of `shape`.
Piece whole_piece(const std::string& tensor, const std::vector<int64_t>& shape);

/// Adds the rows of a head to pieces: from `their_row` on they are the rows from `row` on. `paired`: theirs
/// has the two elements of a rotary pair side by side, as Meta, ours in the two halves of the head.
struct HeadSize {
    int64_t num_rows, num_columns;
};
void add_head(const std::string& tensor, int64_t their_row, int64_t row, HeadSize size, bool paired,
              std::vector<Piece>& pieces);

/// The common elements of a piece and a slab of its tensor of ours: rows of `num_columns` elements, which
/// begin `row_stride` elements of the slab after each other.
struct Part {
    const Piece* piece = nullptr;
    int64_t their_row = 0, their_row_step = 1, their_column = 0;
    int64_t element = 0, row_stride = 0;  // in the slab
    int64_t num_rows = 0, num_columns = 0;
};

/// Visits the slab's elements, each once. REQUIRES: `slab` is of `tensor`.
void for_each_part(const MappedTensor& tensor, const layout::Slab& slab,
                   const std::function<void(const Part&)>& visit);

/// Visits the part's elements in the longest runs that are consecutive in their tensor, of `their_shape`, and
/// in the slab: Run::in_a counts theirs.
void for_each_run(const Part& part, const std::vector<int64_t>& their_shape,
                  const std::function<void(const layout::Run&)>& visit);

/// Tensors of ours, read from a source of theirs.
class MappedSource : public checkpoint::TensorSource {
  public:
    /// REQUIRES: take_expected() finds no fault, and the pieces of a tensor cover it once.
    MappedSource(std::unique_ptr<checkpoint::TensorSource> theirs, std::vector<MappedTensor> ours);
    const std::vector<checkpoint::TensorInfo>& tensors() const override { return tensors_; }
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override;
    const std::string& place() const override { return theirs_->place(); }

  private:
    struct Buffer;
    void read_part(const Part& part, int64_t width, std::span<std::byte> out, Buffer& buffer) const;

    std::unique_ptr<checkpoint::TensorSource> theirs_;
    std::map<std::string, const checkpoint::TensorInfo*> their_tensors_;
    std::vector<checkpoint::TensorInfo> tensors_;
    std::map<std::string, MappedTensor> ours_;
};

/// Collects the faults of many tensors into one message.
class TensorFaults {
  public:
    void add(std::string fault);
    bool none() const { return count_ == 0; }
    std::string text() const;
    /// UserError with the faults, if there is one.
    void check(const std::string& place, const model::ModelSpec& spec) const;

  private:
    int count_ = 0;
    std::vector<std::string> shown_;
};

/// Tensors of a source by their names.
using TensorsByName = std::map<std::string, const checkpoint::TensorInfo*>;
TensorsByName by_name(const checkpoint::TensorSource& source);

/// Removes the tensors of `map.theirs` from `there`, so that only unexpected ones remain. Adds a fault for
/// each that is missing, of another shape, not floating-point, or of another type than others of the same
/// tensor of ours.
void take_expected(TensorsByName& there, const TensorMap& map, TensorFaults& faults);

}  // namespace argosy::interop
