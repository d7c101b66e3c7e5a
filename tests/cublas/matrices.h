// Matrices in the memory of the fake devices, which tests read and write directly; and reference products by
// a plain loop in fp64.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/element_type.h"
#include "cublas/matmul.h"
#include "cuda/memory.h"

namespace argosy::cublas::testing {

inline double value_at(const void* data, int64_t index, ElementType type) {
    switch (type) {
        case ElementType::Float64:
            return static_cast<const double*>(data)[index];
        case ElementType::Float32:
            return static_cast<const float*>(data)[index];
        default:
            return BFloat16::value(static_cast<const uint16_t*>(data)[index]);
    }
}

inline void store_at(void* data, int64_t index, ElementType type, double value) {
    switch (type) {
        case ElementType::Float64:
            static_cast<double*>(data)[index] = value;
            break;
        case ElementType::Float32:
            static_cast<float*>(data)[index] = static_cast<float>(value);
            break;
        default:
            static_cast<uint16_t*>(data)[index] = BFloat16::rounded(static_cast<float>(value));
    }
}

/// Maximum relative change of a number by rounding to the type.
inline double unit_of(ElementType type) {
    switch (type) {
        case ElementType::Float64:
            return std::ldexp(1, -53);
        case ElementType::Float32:
            return std::ldexp(1, -24);
        default:
            return std::ldexp(1, -8);
    }
}

/// The memory layout of a matrix: row-major or column-major, extra elements between rows or columns, and
/// elements before the first one.
struct Lie {
    bool by_rows = true;
    int64_t gap = 0;
    int64_t offset = 0;
};

/// Owns its memory. Elements outside the matrix keep their initial value.
class OwnedMatrix {
  public:
    OwnedMatrix(ElementType type, int64_t rows, int64_t columns, Lie lie)
        : memory_(size_bytes(type) * ((rows + columns + lie.gap + 1) * (rows + columns + 1) + lie.offset)),
          lie_(lie),
          matrix_{memory_.data() + lie.offset * size_bytes(type),
                  type,
                  rows,
                  columns,
                  lie.by_rows ? std::max<int64_t>(columns, 1) + lie.gap : 1,
                  lie.by_rows ? 1 : std::max<int64_t>(rows, 1) + lie.gap} {}

    /// Normally distributed numbers, rounded to the type.
    void fill(std::mt19937& random) {
        std::normal_distribution<double> normal;
        for (int64_t row = 0; row < matrix_.rows; ++row) {
            for (int64_t column = 0; column < matrix_.columns; ++column) set(row, column, normal(random));
        }
    }

    void set(int64_t row, int64_t column, double value) {
        store_at(matrix_.data, index(row, column), matrix_.type, value);
    }
    double get(int64_t row, int64_t column) const {
        return value_at(matrix_.data, index(row, column), matrix_.type);
    }
    std::vector<double> values() const {
        std::vector<double> all;
        for (int64_t row = 0; row < matrix_.rows; ++row) {
            for (int64_t column = 0; column < matrix_.columns; ++column) all.push_back(get(row, column));
        }
        return all;
    }
    std::vector<std::byte> bytes() const { return {memory_.data(), memory_.data() + memory_.bytes()}; }

    const Matrix& view() const { return matrix_; }
    ConstMatrix constant() const {
        return {matrix_.data,    matrix_.type,       matrix_.rows,
                matrix_.columns, matrix_.row_stride, matrix_.column_stride};
    }

  private:
    int64_t index(int64_t row, int64_t column) const {
        return row * matrix_.row_stride + column * matrix_.column_stride;
    }

    cuda::DeviceMemory memory_;
    Lie lie_;
    Matrix matrix_;
};

}  // namespace argosy::cublas::testing
