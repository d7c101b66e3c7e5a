#include "interop/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;
using layout::Slab;

int64_t num_columns(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape.back(); }

/// Rows of one tensor that differ only in the last but one index.
struct Block {
    std::vector<int64_t> index;  // of all dims before
    int64_t row = 0, num_rows = 1;
};

/// Visits the rows [row, row + num_rows) of a tensor, block by block.
void for_each_block(const std::vector<int64_t>& shape, int64_t row, int64_t num_rows,
                    const std::function<void(const Block&)>& visit) {
    if (shape.size() < 2) return visit({});
    const int64_t block_rows = shape[shape.size() - 2], end = row + num_rows;
    while (row < end) {
        Block block{.index = std::vector<int64_t>(shape.size() - 2), .row = row % block_rows};
        block.num_rows = std::min(block_rows - block.row, end - row);
        int64_t rest = row / block_rows;
        for (size_t dim = block.index.size(); dim-- > 0; rest /= shape[dim])
            block.index[dim] = rest % shape[dim];
        visit(block);
        row += block.num_rows;
    }
}

struct Columns {
    int64_t first = 0, num = 0;
    bool operator==(const Columns&) const = default;
};

/// Reads rows of a tensor that is seen as a matrix, without gaps in `out`.
void read_rows(const TensorSource& source, const TensorInfo& tensor, int64_t row, int64_t num_rows,
               Columns columns, std::span<std::byte> out) {
    for_each_block(tensor.shape, row, num_rows, [&](const Block& block) {
        Slab slab{block.index, std::vector<int64_t>(block.index.size(), 1)};
        const auto add = [&](int64_t offset, int64_t size) {
            slab.offset.push_back(offset);
            slab.size.push_back(size);
        };
        if (tensor.shape.size() > 1) add(block.row, block.num_rows);
        if (!tensor.shape.empty()) add(columns.first, columns.num);
        const int64_t num_bytes = slab.num_elements() * size_bytes(tensor.type);
        source.read(tensor, slab, out.first(num_bytes));
        out = out.subspan(num_bytes);
    });
}

/// A slab's rows that follow each other in the matrix, from element `element` of the slab on.
struct Rows {
    int64_t first = 0, num = 1, element = 0;
};

void for_each_rows(const std::vector<int64_t>& shape, const Slab& slab,
                   const std::function<void(const Rows&)>& visit) {
    if (slab.num_elements() == 0) return;
    if (shape.size() < 2) return visit({});
    const size_t num_outer = shape.size() - 2;
    const int64_t block_rows = shape[num_outer], block_elements = slab.size[num_outer] * slab.size.back();
    int64_t num_blocks = 1;
    for (size_t dim = 0; dim < num_outer; ++dim) num_blocks *= slab.size[dim];
    for (int64_t i = 0; i < num_blocks; ++i) {
        int64_t block = 0, rest = i, factor = 1;
        for (size_t dim = num_outer; dim-- > 0; rest /= slab.size[dim], factor *= shape[dim])
            block += (slab.offset[dim] + rest % slab.size[dim]) * factor;
        visit({block * block_rows + slab.offset[num_outer], slab.size[num_outer], i * block_elements});
    }
}

/// The numbers of a piece's rows that are in [begin, end) of its tensor.
std::pair<int64_t, int64_t> common_rows(const Piece& piece, int64_t begin, int64_t end) {
    const int64_t first = begin <= piece.row ? 0 : divide_up(begin - piece.row, piece.row_step);
    const int64_t last = end <= piece.row ? 0 : divide_up(end - piece.row, piece.row_step);
    return {first, std::min(last, piece.num_rows)};
}

}  // namespace

Piece whole_piece(const std::string& tensor, const std::vector<int64_t>& shape) {
    const int64_t columns = num_columns(shape);
    return {.tensor = tensor,
            .num_rows = columns == 0 ? 0 : layout::num_elements(shape) / columns,
            .num_columns = columns};
}

void add_head(const std::string& tensor, int64_t their_row, int64_t row, HeadSize size, bool paired,
              std::vector<Piece>& pieces) {
    const int64_t step = paired ? 2 : 1, rows = size.num_rows / step;
    for (int64_t half = 0; half < step; ++half) {
        pieces.push_back({.tensor = tensor,
                          .their_row = their_row + half,
                          .their_row_step = step,
                          .row = row + half * rows,
                          .num_rows = rows,
                          .num_columns = size.num_columns});
    }
}

void TensorMap::add(const std::string& name, const std::string& their_name, const std::vector<int64_t>& shape,
                    bool optional) {
    ours.push_back({name, shape, {whole_piece(their_name, shape)}, optional});
    theirs.push_back({their_name, shape});
}

const MappedTensor& TensorMap::at(const std::string& name) const {
    const auto found = std::ranges::find(ours, name, &MappedTensor::name);
    ARGOSY_CHECK(found != ours.end());
    return *found;
}

void for_each_part(const MappedTensor& tensor, const Slab& slab,
                   const std::function<void(const Part&)>& visit) {
    const int64_t first_column = slab.offset.empty() ? 0 : slab.offset.back(),
                  columns = slab.size.empty() ? 1 : slab.size.back();
    for_each_rows(tensor.shape, slab, [&](const Rows& rows) {
        for (const Piece& piece : tensor.pieces) {
            const auto [begin, end] = common_rows(piece, rows.first, rows.first + rows.num);
            const int64_t left = std::max(piece.column, first_column),
                          right = std::min(piece.column + piece.num_columns, first_column + columns);
            if (begin >= end || left >= right) continue;
            const int64_t row = piece.row + begin * piece.row_step - rows.first;
            visit({.piece = &piece,
                   .their_row = piece.their_row + begin * piece.their_row_step,
                   .their_row_step = piece.their_row_step,
                   .their_column = piece.their_column + left - piece.column,
                   .element = rows.element + row * columns + left - first_column,
                   .row_stride = piece.row_step * columns,
                   .num_rows = end - begin,
                   .num_columns = right - left});
        }
    });
}

void for_each_run(const Part& part, const std::vector<int64_t>& their_shape,
                  const std::function<void(const layout::Run&)>& visit) {
    const int64_t columns = num_columns(their_shape);
    const bool together =
        part.num_columns == columns && part.row_stride == columns && part.their_row_step == 1;
    const int64_t num_runs = together ? 1 : part.num_rows, rows = part.num_rows / num_runs;
    for (int64_t i = 0; i < num_runs; ++i) {
        visit({.in_a = (part.their_row + i * part.their_row_step) * columns + part.their_column,
               .in_b = part.element + i * part.row_stride,
               .length = rows * part.num_columns});
    }
}

MappedSource::MappedSource(std::unique_ptr<TensorSource> theirs, std::vector<MappedTensor> ours)
    : theirs_(std::move(theirs)), their_tensors_(by_name(*theirs_)) {
    for (MappedTensor& tensor : ours) {
        const auto found = their_tensors_.find(tensor.pieces.at(0).tensor);
        if (tensor.optional && found == their_tensors_.end()) continue;
        tensors_.push_back({tensor.name, found->second->type, tensor.shape});
        int64_t num_elements = 0;
        for (const Piece& piece : tensor.pieces) num_elements += piece.num_rows * piece.num_columns;
        ARGOSY_CHECK(num_elements == tensors_.back().num_elements());
        ours_.emplace(tensor.name, std::move(tensor));
    }
}

/// The rows of theirs that were read last. Both halves of a head are in the same rows of pairs.
struct MappedSource::Buffer {
    const TensorInfo* tensor = nullptr;
    int64_t row = 0, num_rows = 0;
    Columns columns;
    std::vector<std::byte> bytes;

    void read(const TensorSource& source, const TensorInfo& of, int64_t first, int64_t num,
              Columns of_columns) {
        if (tensor == &of && row == first && num_rows == num && columns == of_columns) return;
        tensor = nullptr;
        bytes.resize(num * of_columns.num * size_bytes(of.type));
        read_rows(source, of, first, num, of_columns, bytes);
        tensor = &of, row = first, num_rows = num, columns = of_columns;
    }
};

void MappedSource::read(const TensorInfo& tensor, const Slab& slab, std::span<std::byte> out) const {
    Buffer buffer;
    for_each_part(ours_.find(tensor.name)->second, slab,
                  [&](const Part& part) { read_part(part, size_bytes(tensor.type), out, buffer); });
}

/// Reads rows that are apart, there or here, by way of a buffer with the rows between them.
void MappedSource::read_part(const Part& part, int64_t width, std::span<std::byte> out,
                             Buffer& buffer) const {
    constexpr int64_t kBufferBytes = 4 << 20;
    const TensorInfo& theirs = *their_tensors_.find(part.piece->tensor)->second;
    const Columns columns{part.their_column, part.num_columns};
    const int64_t row_bytes = part.num_columns * width, step = part.their_row_step;
    if (part.num_rows == 1 || (step == 1 && part.row_stride == part.num_columns)) {
        const std::span rows = out.subspan(part.element * width, part.num_rows * row_bytes);
        return read_rows(*theirs_, theirs, part.their_row, part.num_rows, columns, rows);
    }
    const int64_t batch = std::clamp<int64_t>(kBufferBytes / (row_bytes * step), 1, part.num_rows);
    const int64_t offset = part.their_row % step, end = theirs.num_elements() / num_columns(theirs.shape);
    for (int64_t first = 0; first < part.num_rows; first += batch) {
        const int64_t num = std::min(batch, part.num_rows - first);
        const int64_t row = part.their_row - offset + first * step;  // whole strides
        buffer.read(*theirs_, theirs, row, std::min(num * step, end - row), columns);
        for (int64_t i = 0; i < num; ++i) {
            std::memcpy(&out[(part.element + (first + i) * part.row_stride) * width],
                        &buffer.bytes[(offset + i * step) * row_bytes], row_bytes);
        }
    }
}

void TensorFaults::add(std::string fault) {
    constexpr int kShown = 20;
    if (++count_ <= kShown) shown_.push_back(std::move(fault));
}

void TensorFaults::check(const std::string& place, const model::ModelSpec& spec) const {
    if (none()) return;
    throw UserError("{}: the tensors do not match the model ({}, {} layers, {} wide{}): {}", place, spec.name,
                    spec.num_layers, spec.dim, spec.tied_embeddings ? ", tied embeddings" : "", text());
}

std::string TensorFaults::text() const {
    const auto more = count_ - std::ssize(shown_);
    return fmt::format("{}{}", fmt::join(shown_, "; "), more > 0 ? fmt::format("; and {} more", more) : "");
}

TensorsByName by_name(const TensorSource& source) {
    TensorsByName tensors;
    for (const TensorInfo& tensor : source.tensors()) tensors.emplace(tensor.name, &tensor);
    return tensors;
}

namespace {

void check_tensor(const TensorInfo& found, const std::vector<int64_t>& shape, TensorFaults& faults) {
    if (found.shape != shape) {
        faults.add(fmt::format("{} has shape [{}], expected [{}]", found.name, fmt::join(found.shape, ", "),
                               fmt::join(shape, ", ")));
    }
    if (!is_floating(found.type)) {
        faults.add(fmt::format("{} has elements of type {}, expected f64, f32, bf16 or f16", found.name,
                               found.type_name()));
    }
}

}  // namespace

void take_expected(TensorsByName& there, const TensorMap& map, TensorFaults& faults) {
    std::map<std::string, const std::vector<int64_t>*> shapes;
    for (const TensorMap::Theirs& theirs : map.theirs) shapes.emplace(theirs.name, &theirs.shape);
    TensorsByName taken;
    for (const MappedTensor& ours : map.ours) {
        const TensorInfo* first = nullptr;
        std::set<const TensorInfo*> compared;
        for (const Piece& piece : ours.pieces) {
            auto known = taken.find(piece.tensor);
            if (known == taken.end()) {
                const auto found = there.find(piece.tensor);
                known = taken.emplace(piece.tensor, found == there.end() ? nullptr : found->second).first;
                if (known->second) {
                    check_tensor(*known->second, *shapes.at(piece.tensor), faults);
                    there.erase(found);
                } else if (!ours.optional) {
                    faults.add(piece.tensor + " is missing");
                }
            }
            const TensorInfo* tensor = known->second;
            if (tensor == nullptr || !compared.insert(tensor).second) continue;
            if (!first) first = tensor;
            if (tensor->type == first->type) continue;
            faults.add(fmt::format("{} has elements of type {}, but {} of type {}", tensor->name,
                                   tensor->type_name(), first->name, first->type_name()));
        }
    }
}

}  // namespace argosy::interop
