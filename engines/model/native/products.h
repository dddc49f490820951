// Products of rows with weights in panels of 32 outputs. Weights of 16 or 32 bits are read where they are. Quantised
// ones are unpacked to float32, a part of a panel at a time in the L1 cache, or multiplied by quantised activations
// (``integer_products.h``). Each output of a row is summed in the same order, independently of the number of rows.
#pragma once

#include <algorithm>

#include "integer_products.h"

constexpr int float_tile_rows = registers / 4;  // rows whose accumulators stay in registers
constexpr int64_t part_inputs = 64;            // inputs of a panel whose unpacked weights stay in the L1 cache

// A vector of values of a type that is not quantised, as float32.
template <WeightType type>
inline Floats load_values(const uint8_t* from) {
  return type == bfloat16 ? load_bfloat16(from) : type == float16 ? load_float16(from) : load<Floats>(from);
}

// Unpacks whole groups of a panel to float32 [inputs][32 outputs].
template <WeightType type>
void unpack_part(const Weight& w, int64_t index, int64_t input, int64_t inputs, float* out) {
  const uint8_t* from = w.panels + index * panel_bytes(w);
  const auto put = [&](int64_t i, int vector, Floats values) { store(out + i * panel + vector * lanes, values); };
  if constexpr (!is_quantised(type)) {
    for (int64_t i = 0; i < inputs; i++)
      for (int vector = 0; vector < vectors; vector++) {
        put(i, vector, load_values<type>(from + ((input + i) * panel + vector * lanes) * float_bytes(type)));
      }
  } else {
    constexpr Layout l = layout_of(type);
    constexpr int sub_block = l.sub_block ? l.sub_block : group;
    for (int64_t i = 0; i < inputs; i += group) {
      const uint8_t* block = from + (input + i) / l.block * block_bytes(type);
      const int in_block = (input + i) % l.block;
      prefetch_after(block + in_block * (block_bytes(type) / l.block), group * (block_bytes(type) / l.block));
#pragma GCC unroll 1
      for (int vector = 0; vector < vectors; vector++) {
        const Scales<type> scales(block, vector);
        const Quants<type> quants(block, vector);
        with_constant_group<type>(in_block / group, [&](auto g) {
          Floats multiplier, addend;
#pragma GCC unroll 8
          for (int v = 0; v < 8; v++) {
            if (4 * v % sub_block == 0) {
              const int sub = l.sub_block ? (in_block + 4 * v) / sub_block : 0;
              multiplier = scales.multiplier(sub), addend = scales.addend(sub, multiplier);
            }
            const Ints word = quants.at(g, v);
            put(i + 4 * v, vector, multiply_add(byte_to_floats<0>(word), multiplier, addend));
            put(i + 4 * v + 1, vector, multiply_add(byte_to_floats<1>(word), multiplier, addend));
            put(i + 4 * v + 2, vector, multiply_add(byte_to_floats<2>(word), multiplier, addend));
            put(i + 4 * v + 3, vector, multiply_add(byte_to_floats<3>(word), multiplier, addend));
          }
        });
      }
    }
  }
}

inline void unpack_part(const Weight& w, int64_t index, int64_t input, int64_t inputs, float* out) {
  switch (w.type) {
    case float32: return unpack_part<float32>(w, index, input, inputs, out);
    case bfloat16: return unpack_part<bfloat16>(w, index, input, inputs, out);
    case float16: return unpack_part<float16>(w, index, input, inputs, out);
    default: dispatch_quantised(w.type, [&](auto type) { unpack_part<type>(w, index, input, inputs, out); });
  }
}

// These loops are unrolled, or the accumulators would not stay in registers.
#define UNROLLED(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < count; i++)

// Multiplies R rows of x, `x_stride` apart, by N panels of weights [inputs][32], `panel_stride` bytes apart, and adds
// the products to the accumulators [N][R][32]. Prefetches the weights `ahead` bytes further on.
template <WeightType type, int R, int N>
void multiply_tile(const uint8_t* weights, int64_t panel_stride, int64_t inputs, const float* x, int64_t x_stride,
                   float* accumulators, int64_t ahead) {
  constexpr int tile_vectors = lanes == 16 ? 2 : 1;
  for (int at = 0; at < panel; at += tile_vectors * lanes) {
    Floats total[R][N][tile_vectors];
    const auto address = [&](int r, int n, int v) { return accumulators + (n * R + r) * panel + at + v * lanes; };
    UNROLLED(r, R)
      UNROLLED(n, N)
        UNROLLED(v, tile_vectors) total[r][n][v] = load(address(r, n, v));
    for (int64_t k = 0; k < inputs; k++) {
      Floats weight[N][tile_vectors];
      UNROLLED(n, N)
        UNROLLED(v, tile_vectors) {
          const uint8_t* from = weights + n * panel_stride + (k * panel + at + v * lanes) * float_bytes(type);
          weight[n][v] = load_values<type>(from);
          __builtin_prefetch(from + ahead, 0, 2);
        }
      UNROLLED(r, R)
        UNROLLED(n, N)
          UNROLLED(v, tile_vectors)
            total[r][n][v] = multiply_add(weight[n][v], broadcast(x[r * x_stride + k]), total[r][n][v]);
    }
    UNROLLED(r, R)
      UNROLLED(n, N)
        UNROLLED(v, tile_vectors) store(address(r, n, v), total[r][n][v]);
  }
}

#undef UNROLLED

// Calls use(R) with a number of rows up to `max` as a constant.
template <int max, class Use>
inline void with_constant_rows(int64_t rows, Use use) {
  if constexpr (max > 1)
    if (rows < max) return with_constant_rows<max - 1>(rows, use);
  use(std::integral_constant<int, max>());
}

// Calls use(first row, rows) for as few tiles as possible, of about equally many rows.
template <class Use>
inline void for_row_tiles(int64_t count, Use use) {
  const int64_t tiles = (count + float_tile_rows - 1) / float_tile_rows;
  for (int64_t i = 0; i < tiles; i++) use(count * i / tiles, count * (i + 1) / tiles - count * i / tiles);
}

// The outputs of N panels, from this index on, for x [count][in]. Weights of this type are read where they are, each
// once for a tile of rows; others are unpacked to it, a part at a time.
template <WeightType type, int N>
void multiply_panels(int64_t count, const Weight& w, const float* x, int64_t index, float* accumulators,
                     const Output& to) {
  alignas(64) float unpacked[N * part_inputs * panel];
  std::fill_n(accumulators, N * count * panel, 0.0f);
  const bool in_place = w.type == type;
  const int64_t step = in_place ? w.in : part_inputs, panel_stride = step * panel * float_bytes(type);
  for (int64_t input = 0; input < w.in; input += step) {
    const int64_t inputs = std::min(step, w.in - input);
    const uint8_t* weights = in_place ? w.panels + index * panel_stride : (const uint8_t*)unpacked;
    if (!in_place)
      for (int n = 0; n < N; n++) unpack_part(w, index + n, input, inputs, unpacked + n * step * panel);
    for_row_tiles(count, [&](int64_t row, int64_t rows) {
      with_constant_rows<N == 1 ? float_tile_rows : 4>(rows, [&](auto R) {
        multiply_tile<type, R, N>(weights, panel_stride, inputs, x + row * w.in + input, w.in,
                                  accumulators + row * N * panel, in_place && row == 0 ? 16 << 10 : 0);
      });
    });
  }
  for_row_tiles(count, [&](int64_t first, int64_t rows) {
    for (int64_t row = first; row < first + rows; row++)
      for (int n = 0; n < N; n++)
        for (int at = 0; at < panel; at += lanes)
          store_outputs(w, to, row, (index + n) * panel + at,
                        load(accumulators + (first * N + n * rows + row - first) * panel + at));
  });
}

constexpr int64_t most_rows = 512;  // whose accumulators are on the stack: a thread must not fail to allocate them

template <WeightType type>
void multiply_panels(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end, const Output& to) {
  alignas(64) float accumulators[most_rows * panel];
  for (int64_t first = 0; first < count; first += most_rows) {
    const int64_t rows = std::min(most_rows, count - first);
    const float* inputs = x + first * w.in;
    const Output outputs{to.y + first * to.stride, to.stride, to.accumulate};
    int64_t index = from;
    if (rows <= 4)  // two panels at once give more accumulators that do not depend on each other
      for (; index + 2 <= end; index += 2) multiply_panels<type, 2>(rows, w, inputs, index, accumulators, outputs);
    for (; index < end; index++) multiply_panels<type, 1>(rows, w, inputs, index, accumulators, outputs);
  }
}

// The outputs of panels `from` to `end` for x [count][in].
inline void float_product(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end, const Output& to) {
  switch (w.type) {
    case bfloat16: return multiply_panels<bfloat16>(count, w, x, from, end, to);
    case float16: return multiply_panels<float16>(count, w, x, from, end, to);
    default: return multiply_panels<float32>(count, w, x, from, end, to);
  }
}

// The inputs of a product: rows [count][in], and the same rows quantised for the parts of the weight that need that.
struct Activations {
  const float* floats;
  const QuantisedRows& quantised;
};

inline void product(int64_t count, const Weight& w, const Activations& x, int64_t from, int64_t end, Output to) {
  const int64_t own = own_panels(w);
  if (const int64_t last = std::min(end, own); from < last) {
    if (w.int8) integer_product(count, w, x.quantised, from, last, to);
    else float_product(count, w, x.floats, from, last, to);
  }
  if (w.next)
    product(count, *w.next, x, std::max<int64_t>(from - own, 0), end - own, {to.y + w.out, to.stride, to.accumulate});
}

// Unpacks a panel of a weight to float32 [out][in].
inline void unpack_panel(const Weight& w, int64_t index, float* out) {
  float weights[group * panel];
  for (int64_t input = 0; input < w.in; input += group) {
    unpack_part(w, index, input, group, weights);
    for (int64_t i = 0; i < panel && index * panel + i < w.out; i++)
      for (int64_t k = 0; k < group; k++) out[(index * panel + i) * w.in + input + k] = weights[k * panel + i];
  }
}

// Quants of 3 bits, 0 to 7 with an offset of 4, as floats.
inline Floats three_bit_quants(Floats x, Floats inverse_scale) {
  const Floats max = broadcast(7), quants = multiply_add(x, inverse_scale, broadcast(4));
  return blend(quants > 0.0f, blend(quants < max, quants, max), broadcast(0)) + 12582912.0f - 12582912.0f;
}

// Requantises a panel to rows [32][in / 32] of ``three_bits``. The weight of the largest magnitude becomes -4 times the
// scale, or a little less: of several such scales, the one with the smallest squared error is chosen.
inline void requantise_panel(const Weight& w, int64_t index, uint8_t* out) {
  constexpr int64_t size = layout_of(three_bits).file_bytes;
  alignas(64) float weights[group * panel], scales[panel];
  alignas(64) int32_t quants[group * panel];
  for (int64_t input = 0; input < w.in; input += group) {
    unpack_part(w, index, input, group, weights);
    for (int at = 0; at < panel; at += lanes) {
      Floats min = load(weights + at), max = min;
      for (int k = 1; k < group; k++) {
        const Floats x = load(weights + k * panel + at);
        min = blend(x < min, x, min), max = blend(x > max, x, max);
      }
      const Floats extreme = blend(-min > max, min, max);
      Floats best{}, best_error = broadcast(INFINITY);
      for (int step = 20; step >= 14; step--) {
        Floats scale = extreme * (step / -80.0f);
        for (int i = 0; i < lanes; i++) scale[i] = round_to_float16(scale[i]);
        const Floats inverse = blend(scale * scale > 0.0f, broadcast(1) / scale, broadcast(0));
        Floats error{};
        for (int k = 0; k < group; k++) {
          const Floats x = load(weights + k * panel + at);
          const Floats difference = multiply_add(three_bit_quants(x, inverse) - 4.0f, scale, -x);
          error = multiply_add(difference, difference, error);
        }
        best = blend(error < best_error, scale, best), best_error = blend(error < best_error, error, best_error);
      }
      std::memcpy(scales + at, &best, sizeof best);
      const Floats inverse = blend(best * best > 0.0f, broadcast(1) / best, broadcast(0));
      for (int k = 0; k < group; k++) {
        const Floats rounded = three_bit_quants(load(weights + k * panel + at), inverse);
        const Ints integers = __builtin_convertvector(rounded, Ints);
        std::memcpy(quants + k * panel + at, &integers, sizeof integers);
      }
    }
    for (int64_t i = 0; i < panel; i++) {
      uint8_t* to = out + (i * w.in + input) / group * size;
      const _Float16 scale = _Float16(scales[i]);
      std::memcpy(to, &scale, 2);
      std::memset(to + 2, 0, size - 2);
      for (int k = 0; k < group; k++) {
        const int32_t quant = quants[k * panel + i], v = k / 4, byte = k % 4;
        if (v < 6) to[2 + v / 2 * 4 + byte] |= quant << 3 * (v % 2);
        else to[2 + (v - 6) * 4 + byte] |= quant << 6, to[10 + byte] |= quant >> 2 << v;
      }
    }
  }
}

// The first inputs of a row of a weight as float32.
inline void unpack_row(const Weight& w, int64_t row, int64_t inputs, float* out) {
  float weights[group * panel];
  for (int64_t input = 0; input < inputs; input += group) {
    unpack_part(w, row / panel, input, group, weights);
    for (int64_t k = 0; k < group && input + k < inputs; k++) out[input + k] = weights[k * panel + row % panel];
  }
}
