// The arrays of the tests of GPU kernels: each has a copy in host memory and one on the GPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/gpu_place.h"
#include "kernels/table.h"
#include "kernels/types.h"

namespace argosy::kernels {

/// A value that no arithmetic produces; it marks elements that nobody wrote.
template <class T>
T mark();
template <>
inline float mark() {
    return std::bit_cast<float>(0x7fa5a5a5);
}
template <>
inline double mark() {
    return std::bit_cast<double>(uint64_t{0x7fa5a5a5a5a5a5a5});
}
template <>
inline int32_t mark() {
    return 0x7fa5a5a5;
}
template <>
inline int64_t mark() {
    return 0x7fa5a5a5a5a5a5a5;
}
template <>
inline uint64_t mark() {
    return 0x7fa5a5a5a5a5a5a5;
}
template <>
inline BFloat16 mark() {
    return {0x7fa5};
}
/// A value too: of these only elements outside can be judged.
template <>
inline uint8_t mark() {
    return 0x5b;
}

template <class T>
double wide(T x) {
    float result;
    table().of<T>().widen({1, &x, &result});
    return result;
}
template <class T>
T narrow(double x) {
    const auto single = static_cast<float>(x);
    T result;
    table().of<T>().narrow({1, &single, &result});
    return result;
}

enum class Side { Gpu, Processor };

/// Elements between guards, aligned to 16 bytes, or one element past that. A side gets what the other wrote
/// when it asks for its pointer. A pointer that can write is valid until the other side asks for its own.
template <class T>
class Memory {
  public:
    /// Elements that nobody has written yet.
    Memory(int64_t size, bool aligned)
        : begin_(kGuard + (aligned ? 0 : 1)), size_(size), host_(size + 2 * kGuard + 1, mark<T>()) {}
    explicit Memory(const std::vector<T>& elements) : Memory(std::ssize(elements), /*aligned=*/true) {
        std::copy(elements.begin(), elements.end(), host());
    }
    Memory(const Memory& other)
        : begin_(other.begin_),
          size_(other.size_),
          host_(other.all()),
          unwritten_(other.unwritten_ && !other.gpu_) {}
    Memory(Memory&&) noexcept = default;
    Memory& operator=(Memory other) noexcept {
        std::swap(begin_, other.begin_), std::swap(size_, other.size_), std::swap(host_, other.host_);
        std::swap(gpu_, other.gpu_), std::swap(newer_, other.newer_), std::swap(unwritten_, other.unwritten_);
        return *this;
    }

    T* host() {
        fetch();
        newer_ = Newer::Host, unwritten_ = false;
        return host_.data() + begin_;
    }
    const T* host() const { return all().data() + begin_; }
    T* gpu() {
        send();
        newer_ = Newer::Gpu;
        return gpu_.get() + begin_;
    }
    const T* gpu() const {
        send();
        return gpu_.get() + begin_;
    }
    T* on(Side side) { return side == Side::Gpu ? gpu() : host(); }
    const T* on(Side side) const { return side == Side::Gpu ? gpu() : host(); }

    int64_t size() const { return size_; }
    T& operator[](int64_t i) { return host()[i]; }
    T operator[](int64_t i) const { return host()[i]; }
    double at(int64_t i) const { return wide(host()[i]); }

    /// Counts elements outside that were written.
    int64_t faults_outside() const {
        if (bare()) return 0;
        const auto is_mark = [](const T& x) { return is_unwritten(x); };
        const auto begin = all().begin() + begin_;
        return begin_ - std::count_if(all().begin(), begin, is_mark) + (all().end() - begin - size_) -
               std::count_if(begin + size_, all().end(), is_mark);
    }
    /// Counts these and the elements inside that were not written.
    int64_t faults() const { return faults_outside() + std::count_if(host(), host() + size_, is_unwritten); }
    bool same_bits(const Memory& other) const {
        return std::memcmp(all().data(), other.all().data(), host_.size() * sizeof(T)) == 0;
    }

  private:
    static constexpr int64_t kGuard = 16;
    enum class Newer { Neither, Host, Gpu };
    struct Free {
        void operator()(T* memory) const { free_on_gpu(memory); }
    };

    static bool is_unwritten(const T& x) {
        const T unwritten = mark<T>();
        return std::memcmp(&x, &unwritten, sizeof(T)) == 0;
    }
    /// Whether the GPU's memory has no marks, nor guards to look at.
    bool bare() const { return unwritten_ && !marks_unwritten_memory(); }

    void send() const {
        const size_t bytes = host_.size() * sizeof(T);
        if (!gpu_) gpu_.reset(static_cast<T*>(allocate_on_gpu(bytes)));
        if (newer_ == Newer::Host && !bare()) copy_to_gpu(gpu_.get(), host_.data(), bytes);
        if (newer_ == Newer::Host) newer_ = Newer::Neither;
    }
    void fetch() const {
        if (newer_ != Newer::Gpu) return;
        const int64_t begin = bare() ? begin_ : 0, size = bare() ? size_ : std::ssize(host_);
        copy_from_gpu(host_.data() + begin, gpu_.get() + begin, size * sizeof(T));
        newer_ = Newer::Neither;
    }
    const std::vector<T>& all() const {
        fetch();
        return host_;
    }

    int64_t begin_, size_;
    mutable std::vector<T> host_;
    mutable std::unique_ptr<T, Free> gpu_;  // as many elements; null until a kernel needs them
    mutable Newer newer_ = Newer::Host;
    bool unwritten_ = true;  // by the host
};

}  // namespace argosy::kernels
