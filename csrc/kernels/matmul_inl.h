// Products of quantised weights with 8-bit activations: one column straight from memory, several from unpacked weights.
#pragma once

#include "kernels/matmul_column_inl.h"

namespace les {
namespace {

constexpr int kChunkUnits = 4;  // units of a row unpacked at once: a tile's chunk stays in the first-level cache
constexpr int kColumnBlock = 64;  // columns that share one unpacking

// --- one column: weights straight from memory -----------------------------------------------------------------------

// The least distance from a read to the use of it. Measured on Zen 5: without prefetch half the bandwidth is lost, and
// lines have to be asked for in the order of memory, not row beside row.
constexpr size_t kAheadBytes = 8192;

// kRows rows; n_behind more of the matrix lie right behind them.
template <typename T, int kRows>
inline void gemv_rows(const uint8_t* w, const RowShape& shape, int n_behind, const Column& x, const Column& x_tail,
                      float* y) {
  F acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = f_zero();
  // Whole tiles ahead, read from front to back while this one is computed row beside row.
  const size_t tile_bytes = kRows * shape.row_bytes;
  const size_t tiles_ahead = (kAheadBytes + tile_bytes - 1) / tile_bytes;
  const bool has_ahead = static_cast<size_t>(n_behind) >= tiles_ahead * kRows;
  const uint8_t* ahead = w + (has_ahead ? tiles_ahead * tile_bytes : 0);
  for (int u = 0; u < shape.n_units; ++u) {
    const uint8_t* at = w + static_cast<size_t>(u) * kUnitBytes<T>;
#pragma GCC unroll 16
    for (size_t line = 0; line < kRows * kUnitBytes<T>; line += 64) prefetch(ahead + line);
    ahead += kRows * kUnitBytes<T>;
    const Column now = advance(x, u);
    unit_rows<T, kRows>(at, shape.row_bytes, now, acc);
  }
  if (shape.tail_groups > 0) {
    constexpr size_t kPadded = (kUnitBytes<T> + 63) / 64 * 64;
    alignas(64) uint8_t padded[kRows * kPadded];
    const size_t whole_bytes = static_cast<size_t>(shape.n_units) * kUnitBytes<T>;
    std::memset(padded, 0, sizeof(padded));
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(padded + static_cast<size_t>(r) * kPadded, w + static_cast<size_t>(r) * shape.row_bytes + whole_bytes,
                  static_cast<size_t>(shape.tail_groups * kActBlock / T::kBlock) * T::kBlockBytes);
    }
    unit_rows<T, kRows>(padded, kPadded, x_tail, acc);
  }
  for (int r = 0; r < kRows; ++r) y[r] = f_sum(acc[r]);
}

template <typename T>
inline void gemv(const uint8_t* w, const RowShape& shape, int n_rows, const Activations& x, float* y) {
  const Column all = column(x, 0);
  ColumnTail tail;
  const Column x_tail = shape.tail_groups > 0 ? fill_tail(advance(all, shape.n_units), shape.tail_groups, tail) : all;
  int r = 0;
  for (; r + kGemvRows <= n_rows; r += kGemvRows) {
    gemv_rows<T, kGemvRows>(w + static_cast<size_t>(r) * shape.row_bytes, shape, n_rows - r - kGemvRows, all, x_tail,
                            y + r);
  }
  for (; r < n_rows; ++r) {
    gemv_rows<T, 1>(w + static_cast<size_t>(r) * shape.row_bytes, shape, n_rows - r - 1, all, x_tail, y + r);
  }
}

// --- several columns: weights unpacked once for all of them ---------------------------------------------------------

struct alignas(64) PackedUnit {
  uint8_t w[kUnit];
  float scale[16];
  float min[16];
};

template <Form kFormOf, typename Scale, Mins kMinsOf>
struct Packed {
  static constexpr Form kForm = kFormOf;
  static constexpr Mins kMins = kMinsOf;
  const uint8_t* w;
  Scale scale;
  Scale min;

  static inline Packed open(const uint8_t* p) {
    const PackedUnit* unit = reinterpret_cast<const PackedUnit*>(p);
    Packed packed;
    packed.w = unit->w;
    load(unit->scale, packed.scale);
    if constexpr (kMins != Mins::kNone) load(unit->min, packed.min);
    return packed;
  }
  inline B step(int j) const { return b_load(w + j * kStep); }

 private:
  static inline void load(const float* p, S8& s) { s = s8_load(p); }
  static inline void load(const float* p, S16& s) { s = s16_load(p); }
};

inline void store_scales(float* p, S8 s) { s8_store(p, s); }
inline void store_scales(float* p, S16 s) { s16_store(p, s); }

template <typename T>
inline void pack_unit(const uint8_t* p, PackedUnit& out) {
  const T unit = T::open(p);
#pragma GCC unroll kUnroll
  for (int j = 0; j < kSteps; ++j) b_store(out.w + j * kStep, unit.step(j));
  store_scales(out.scale, unit.scale);
  if constexpr (T::kMins != Mins::kNone) store_scales(out.min, unit.min);
}

// Unit u of a row; the last may be incomplete.
template <typename T>
inline void pack_row_unit(const uint8_t* row, const RowShape& shape, int u, PackedUnit& out) {
  const uint8_t* p = row + static_cast<size_t>(u) * kUnitBytes<T>;
  if (u < shape.n_units) {
    pack_unit<T>(p, out);
    return;
  }
  alignas(64) uint8_t padded[(kUnitBytes<T> + 63) / 64 * 64] = {};
  std::memcpy(padded, p, static_cast<size_t>(shape.tail_groups * kActBlock / T::kBlock) * T::kBlockBytes);
  pack_unit<T>(padded, out);
}

constexpr size_t kPackedStride = kChunkUnits * sizeof(PackedUnit);

// acc[r * kColumnBlock + c] += n_units units of kRows packed rows times kCols columns.
template <typename P, int kRows, int kCols>
inline void packed_tile(const PackedUnit* packed, int n_units, const Column* x, F* acc, int bias) {
  F total[kRows * kCols];
  Column at[kCols];
  for (int c = 0; c < kCols; ++c) at[c] = x[c];
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll kUnroll
    for (int c = 0; c < kCols; ++c) total[r * kCols + c] = acc[r * kColumnBlock + c];
  }
  for (int u = 0; u < n_units; ++u) {
    unit_product<P, kRows, kCols>(reinterpret_cast<const uint8_t*>(packed + u), kPackedStride, at, total, kCols, bias);
    for (int c = 0; c < kCols; ++c) at[c] = advance(at[c], 1);
  }
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll kUnroll
    for (int c = 0; c < kCols; ++c) acc[r * kColumnBlock + c] = total[r * kCols + c];
  }
}

// Two rows and columns at a time where kHasPairProduct (matmul_i8mm.h); returns how many columns it did.
template <typename P, int kRows>
inline int pair_product(const PackedUnit* packed, int n_units, const Column* x, int n_cols, F* acc);

// Kept out of line: it depends on the form of the weights only, and several types share it.
template <typename P, int kRows>
__attribute__((noinline)) void packed_product(const PackedUnit* packed, int n_units, const Column* x, int n_cols,
                                              F* acc, int bias) {
  int c = 0;
  if constexpr (kHasPairProduct && kRows > 1) c = pair_product<P, kRows>(packed, n_units, x, n_cols, acc);
  for (; c + kTileCols <= n_cols; c += kTileCols) {
    packed_tile<P, kRows, kTileCols>(packed, n_units, x + c, acc + c, bias);
  }
  for (; c < n_cols; ++c) packed_tile<P, kRows, 1>(packed, n_units, x + c, acc + c, bias);
}

template <typename T, int kRows>
inline void gemm_rows(const uint8_t* w, const RowShape& shape, const Column* x, const Column* x_tail, int n_cols,
                      float* y, size_t ldy) {
  using P = Packed<T::kForm, decltype(T::scale), T::kMins>;
  PackedUnit packed[kRows * kChunkUnits];
  F acc[kRows * kColumnBlock];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < n_cols; ++c) acc[r * kColumnBlock + c] = f_zero();
  }
  Column at[kColumnBlock];
  for (int u = 0; u < shape.n_units; u += kChunkUnits) {
    const int n_units = shape.n_units - u < kChunkUnits ? shape.n_units - u : kChunkUnits;
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < n_units; ++i) {
        pack_row_unit<T>(w + static_cast<size_t>(r) * shape.row_bytes, shape, u + i, packed[r * kChunkUnits + i]);
      }
    }
    for (int c = 0; c < n_cols; ++c) at[c] = advance(x[c], u);
    packed_product<P, kRows>(packed, n_units, at, n_cols, acc, T::kBias);
  }
  if (shape.tail_groups > 0) {
    for (int r = 0; r < kRows; ++r) {
      pack_row_unit<T>(w + static_cast<size_t>(r) * shape.row_bytes, shape, shape.n_units, packed[r * kChunkUnits]);
    }
    packed_product<P, kRows>(packed, 1, x_tail, n_cols, acc, T::kBias);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < n_cols; ++c)
      y[static_cast<size_t>(c) * ldy + static_cast<size_t>(r)] = f_sum(acc[r * kColumnBlock + c]);
  }
}

template <typename T>
inline void gemm(const uint8_t* w, const RowShape& shape, int n_rows, const Activations& x, int first_col, int n_cols,
                 float* y, size_t ldy) {
  Column at[kColumnBlock];
  Column at_tail[kColumnBlock];
  ColumnTail tails[kColumnBlock];
  for (int c = 0; c < n_cols; ++c) {
    at[c] = column(x, first_col + c);
    if (shape.tail_groups > 0) at_tail[c] = fill_tail(advance(at[c], shape.n_units), shape.tail_groups, tails[c]);
  }
  int r = 0;
  for (; r + kTileRows <= n_rows; r += kTileRows) {
    gemm_rows<T, kTileRows>(w + static_cast<size_t>(r) * shape.row_bytes, shape, at, at_tail, n_cols, y + r, ldy);
  }
  for (; r < n_rows; ++r) {
    gemm_rows<T, 1>(w + static_cast<size_t>(r) * shape.row_bytes, shape, at, at_tail, n_cols, y + r, ldy);
  }
}

inline RowShape row_shape(size_t row_bytes, int n_in) { return {row_bytes, n_in / kUnit, n_in % kUnit / kActBlock}; }

template <typename T>
void matmul(const uint8_t* w, size_t row_bytes, int n_rows, const Activations& x, float* y, size_t ldy) {
  const RowShape shape = row_shape(row_bytes, x.n_in);
  if (x.n_cols == 1) {
    gemv<T>(w, shape, n_rows, x, y);
    return;
  }
  for (int c = 0; c < x.n_cols; c += kColumnBlock) {
    const int n_cols = x.n_cols - c < kColumnBlock ? x.n_cols - c : kColumnBlock;
    gemm<T>(w, shape, n_rows, x, c, n_cols, y + static_cast<size_t>(c) * ldy, ldy);
  }
}

}  // namespace
}  // namespace les
