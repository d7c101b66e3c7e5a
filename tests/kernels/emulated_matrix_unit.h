// AMX in plain C++, with one unit per thread. Where the CPU would raise a fault, the emulation throws.
#pragma once

#include <array>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/matrix_unit_tile.h"
#include "kernels/emulated_arithmetic.h"

namespace argosy::kernels::ARGOSY_VARIANT {

inline void fault_unless(bool right, const char* what) {
    if (!right) throw std::logic_error(what);
}

struct MatrixUnit {
    struct Register {
        int rows = 0, row_bytes = 0;
        std::array<std::array<char, 64>, 16> memory{};
        template <class T>
        T get(int row, int column) const {
            T element;
            std::memcpy(&element, memory[row].data() + column * sizeof(T), sizeof(T));
            return element;
        }
    };
    bool configured = false;
    std::array<Register, 8> registers;

    Register& at(int index) {
        fault_unless(configured, "a tile register used without a configuration");
        fault_unless(registers[index].rows > 0, "a tile register used that the configuration leaves out");
        return registers[index];
    }
};
inline thread_local MatrixUnit matrix_unit;

struct EmulatedAmx {
    /// Bytes of the configuration: 0 palette, 1 start row, 16 ... 31 bytes per row (16 bits each), 48 ... 55
    /// rows.
    static void configure(const void* from) {
        unsigned char bytes[64];
        std::memcpy(bytes, from, sizeof bytes);
        fault_unless(bytes[0] == 1 && bytes[1] == 0, "palette 1, from the first row");
        for (int i = 2; i < 64; ++i) {
            const bool reserved = i < 16 || (i >= 32 && i < 48) || i >= 56;
            fault_unless(!reserved || bytes[i] == 0, "a reserved byte is set");
        }
        matrix_unit = {.configured = true};
        for (int i = 0; i < 8; ++i) {
            const int row_bytes = bytes[16 + 2 * i] + 256 * bytes[17 + 2 * i], rows = bytes[48 + i];
            fault_unless(row_bytes <= 64 && rows <= 16 && (row_bytes == 0) == (rows == 0),
                         "a register too large");
            matrix_unit.registers[i] = {.rows = rows, .row_bytes = row_bytes};
        }
    }
    static void release() { matrix_unit = {}; }

    template <int kTo>
    static void zero() {
        matrix_unit.at(kTo).memory = {};
    }
    template <int kTo>
    static void load(const void* from, int64_t stride_bytes) {
        auto& to = matrix_unit.at(kTo);
        to.memory = {};
        for (int row = 0; row < to.rows; ++row)
            std::memcpy(to.memory[row].data(), static_cast<const char*>(from) + row * stride_bytes,
                        to.row_bytes);
    }
    template <int kFrom>
    static void store(void* to, int64_t stride_bytes) {
        const auto& from = matrix_unit.at(kFrom);
        for (int row = 0; row < from.rows; ++row)
            std::memcpy(static_cast<char*>(to) + row * stride_bytes, from.memory[row].data(), from.row_bytes);
    }

    template <int kC, int kA, int kB>
    static void dot() {
        auto &c = matrix_unit.at(kC), &a = matrix_unit.at(kA), &b = matrix_unit.at(kB);
        fault_unless(kC != kA && kC != kB && kA != kB, "a product of a register with itself");
        fault_unless(c.rows == a.rows && c.row_bytes == b.row_bytes && a.row_bytes == 4 * b.rows,
                     "registers whose shapes do not match");
        for (int row = 0; row < c.rows; ++row) {
            for (int column = 0; column < c.row_bytes / 4; ++column) {
                float even = 0, odd = 0;
                for (int pair = 0; pair < b.rows; ++pair) {
                    const auto element = [&](int i, float sum) {
                        return multiply_add_flushed(a.get<BFloat16>(row, 2 * pair + i),
                                                    b.get<BFloat16>(pair, 2 * column + i), sum);
                    };
                    even = element(0, even);
                    odd = element(1, odd);
                }
                const float sum = flushed(flushed(c.get<float>(row, column)) + flushed(even + odd));
                std::memcpy(c.memory[row].data() + 4 * column, &sum, sizeof sum);
            }
        }
    }
};

}  // namespace argosy::kernels::ARGOSY_VARIANT
