// Reading of elements with any strides.
#include <algorithm>
#include <cstring>

#include "checkpoint/gather.h"
#include "pytorch/archive.h"

namespace argosy::pytorch {
namespace {

using layout::Slab;

constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr int64_t kPageBytes = 4096;  // elements that are farther apart are read alone

bool is_row_major(const StoredTensor& tensor) {
    int64_t expected = 1;
    for (size_t dim = tensor.shape.size(); dim-- > 0;) {
        if (tensor.shape[dim] != 1 && tensor.strides[dim] != expected) return false;
        expected *= tensor.shape[dim];
    }
    return true;
}

/// One line of elements: `length` of them, `stride` elements apart in the file and `out_stride` in memory.
struct Line {
    int64_t length = 1, stride = 1, out_stride = 1;
};

class StridedRead {
  public:
    StridedRead(const RawFile& file, const StoredTensor& tensor, std::span<std::byte> out)
        : file_(file), width_(tensor.type.num_bytes), at_(tensor.at), out_(out) {}

    /// Reads the line whose first element is `from` in the file and `to` in memory.
    void read(const Line& line, int64_t from, int64_t to) {
        const int64_t step = std::max<int64_t>(line.stride, 1) * width_;
        const int64_t per_read =
            step > kPageBytes ? 1 : std::max<int64_t>((kReadBytes - width_) / step + 1, 1);
        buffer_.resize(kReadBytes);
        for (int64_t done = 0; done < line.length; done += per_read) {
            const int64_t count = std::min(per_read, line.length - done);
            const auto bytes = std::span(buffer_).first((count - 1) * line.stride * width_ + width_);
            file_.read_at(at_ + (from + done * line.stride) * width_, bytes);
            for (int64_t i = 0; i < count; ++i) {
                std::memcpy(out_.data() + (to + (done + i) * line.out_stride) * width_,
                            bytes.data() + i * line.stride * width_, width_);
            }
        }
    }

  private:
    const RawFile& file_;
    int64_t width_, at_;
    std::span<std::byte> out_;
    std::vector<std::byte> buffer_;
};

/// Reads along the dim whose elements are the nearest in the file.
void read_strided(const RawFile& file, const StoredTensor& tensor, const Slab& stored, const Slab& wanted,
                  const Slab& common, std::span<std::byte> out) {
    const size_t num_dims = common.size.size();
    std::vector<int64_t> out_strides(num_dims, 1);
    for (size_t dim = num_dims; dim-- > 1;) out_strides[dim - 1] = out_strides[dim] * wanted.size[dim];
    size_t along = num_dims - 1;
    for (size_t dim = 0; dim < num_dims; ++dim) {
        const bool is_long = common.size[dim] > 1 && tensor.strides[dim] > 0;
        if (is_long && (common.size[along] == 1 || tensor.strides[dim] < tensor.strides[along])) along = dim;
    }
    const Line line{common.size[along], tensor.strides[along], out_strides[along]};
    StridedRead reader(file, tensor, out);
    std::vector<int64_t> at = common.offset;
    while (true) {
        int64_t from = 0, to = 0;
        for (size_t dim = 0; dim < num_dims; ++dim) {
            from += (at[dim] - stored.offset[dim]) * tensor.strides[dim];
            to += (at[dim] - wanted.offset[dim]) * out_strides[dim];
        }
        reader.read(line, from, to);
        size_t dim = num_dims;
        while (dim > 0 &&
               (dim - 1 == along || ++at[dim - 1] == common.offset[dim - 1] + common.size[dim - 1])) {
            at[dim - 1] = common.offset[dim - 1];
            --dim;
        }
        if (dim == 0) return;
    }
}

}  // namespace

void read_elements(const RawFile& file, const StoredTensor& tensor, const Slab& stored, const Slab& wanted,
                   std::span<std::byte> out) {
    const Slab common = *layout::intersection(stored, wanted);
    if (!is_row_major(tensor)) return read_strided(file, tensor, stored, wanted, common, out);
    const int64_t width = tensor.type.num_bytes;
    checkpoint::Gather gather(file, out);
    layout::for_each_run(common, stored, wanted, [&](const layout::Run& run) {
        gather.add(tensor.at + run.in_a * width, run.in_b * width, run.length * width);
    });
    gather.flush();
}

}  // namespace argosy::pytorch
