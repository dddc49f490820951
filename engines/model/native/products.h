// Products of rows with weights in blocks of 32 outputs. What is stored becomes float32 numbers, a part of a block at a
// time in the nearest cache, and is multiplied as such; or inputs are rounded (``whole.h``). A sum of a row and an output
// is made in one order, however many rows there are.
#pragma once

#include <algorithm>
#include <vector>

#include "whole.h"

constexpr int few_rows = registers / 4;        // whose sums stay in registers
constexpr int64_t part = 64;                    // inputs of a block whose numbers stay in the nearest cache

// Numbers of a weight that become float32 together, [inputs][32 outputs]: those of whole groups in a block.
template <Stored stored>
void unpack_part(const Weight& w, int64_t number, int64_t input, int64_t inputs, float* out) {
  const uint8_t* from = w.blocks + number * block_size(w);
  const auto put = [&](int64_t i, int vector, Floats numbers) { store(out + i * block + vector * lanes, numbers); };
  if constexpr (!whole_numbers(stored)) {
    for (int64_t i = 0; i < inputs; i++)
      for (int vector = 0; vector < vectors; vector++) {
        const uint8_t* at = from + ((input + i) * block + vector * lanes) * number_size(stored);
        put(i, vector, stored == bfloat16 ? upper_halves(at) : stored == float16 ? halves(at) : load<Floats>(at));
      }
  } else {
    constexpr Form f = form(stored);
    constexpr int each = f.each ? f.each : group;
    for (int64_t i = 0; i < inputs; i += group) {
      const uint8_t* span = from + (input + i) / f.span * span_size(stored);
      const int in_span = (input + i) % f.span;
      fetch(span + in_span * (span_size(stored) / f.span), group * (span_size(stored) / f.span));
#pragma GCC unroll 1
      for (int vector = 0; vector < vectors; vector++) {
        const Scales<stored> scales(span, vector);
        const Numbers<stored> numbers(span, vector);
        by_place<stored>(in_span / group, [&](auto place) {
          Floats factor, added;
#pragma GCC unroll 8
          for (int v = 0; v < 8; v++) {
            if (4 * v % each == 0) {
              const int small = f.each ? (in_span + 4 * v) / each : 0;
              factor = scales.factor(small), added = scales.added(small, factor);
            }
            const Ints four = numbers.at(place, v);
            put(i + 4 * v, vector, fused(of_byte<0>(four), factor, added));
            put(i + 4 * v + 1, vector, fused(of_byte<1>(four), factor, added));
            put(i + 4 * v + 2, vector, fused(of_byte<2>(four), factor, added));
            put(i + 4 * v + 3, vector, fused(of_byte<3>(four), factor, added));
          }
        });
      }
    }
  }
}

inline void unpack_part(const Weight& w, int64_t number, int64_t input, int64_t inputs, float* out) {
  switch (w.stored) {
    case float32: return unpack_part<float32>(w, number, input, inputs, out);
    case bfloat16: return unpack_part<bfloat16>(w, number, input, inputs, out);
    case float16: return unpack_part<float16>(w, number, input, inputs, out);
    default: by_whole_kind(w.stored, [&](auto kind) { unpack_part<kind>(w, number, input, inputs, out); });
  }
}

// Sums stay in registers only where the loops over them are gone.
#define OF(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < count; i++)

// R rows of x, `next` after each other, times the numbers of N blocks, [inputs][32] each, `apart` from each other, added
// to totals [N][R][32]. `ahead`: how far on what will be read soon is asked for.
template <int R, int N>
void add_tile(const float* numbers, int64_t apart, int64_t inputs, const float* x, int64_t next, float* totals,
              int64_t ahead) {
  constexpr int at_once = lanes == 16 ? 2 : 1;
  for (int at = 0; at < block; at += at_once * lanes) {
    Floats total[R][N][at_once];
    const auto place = [&](int r, int n, int b) { return totals + (n * R + r) * block + at + b * lanes; };
    OF(r, R)
      OF(n, N)
        OF(b, at_once) total[r][n][b] = load(place(r, n, b));
    for (int64_t k = 0; k < inputs; k++) {
      Floats weight[N][at_once];
      OF(n, N)
        OF(b, at_once) {
          const float* from = numbers + n * apart + k * block + at + b * lanes;
          weight[n][b] = load(from);
          __builtin_prefetch(from + ahead, 0, 2);
        }
      OF(r, R)
        OF(n, N)
          OF(b, at_once) total[r][n][b] = fused(weight[n][b], all(x[r * next + k]), total[r][n][b]);
    }
    OF(r, R)
      OF(n, N)
        OF(b, at_once) store(place(r, n, b), total[r][n][b]);
  }
}

#undef OF

// Calls use(R) for a number of rows that there is code for, up to `most`, as a constant.
template <int most, class Use>
inline void of_rows(int64_t count, Use use) {
  if constexpr (most > 1)
    if (count < most) return of_rows<most - 1>(count, use);
  use(std::integral_constant<int, most>());
}

// Calls use(row, rows) for as few tiles of about as many rows.
template <class Use>
inline void each_tile(int64_t count, Use use) {
  const int64_t tiles = (count + few_rows - 1) / few_rows;
  for (int64_t i = 0; i < tiles; i++) use(count * i / tiles, count * (i + 1) / tiles - count * i / tiles);
}

// The outputs of N blocks from number `from` on of x [count][in].
template <int N>
void blocks_product(int64_t count, const Weight& w, const float* x, int64_t from, float* totals, const Result& to) {
  alignas(64) float unpacked[N * part * block];
  std::fill_n(totals, N * count * block, 0.0f);
  const bool numbers = w.stored == float32;  // a block of these stays in the cache as it is
  const int64_t most = numbers ? w.in : part;
  for (int64_t input = 0; input < w.in; input += most) {
    const int64_t inputs = std::min(most, w.in - input), apart = most * block;
    const float* read = unpacked;
    if (numbers) read = (const float*)w.blocks + (from * w.in + input) * block;
    else for (int n = 0; n < N; n++) unpack_part(w, from + n, input, inputs, unpacked + n * apart);
    each_tile(count, [&](int64_t row, int64_t rows) {
      of_rows<N == 1 ? few_rows : 4>(rows, [&](auto R) {
        add_tile<R, N>(read, apart, inputs, x + row * w.in + input, w.in, totals + row * N * block,
                       numbers && row == 0 ? 4 << 10 : 0);
      });
    });
  }
  each_tile(count, [&](int64_t first, int64_t rows) {
    for (int64_t row = first; row < first + rows; row++)
      for (int n = 0; n < N; n++)
        for (int at = 0; at < block; at += lanes)
          put(w, to, row, (from + n) * block + at, load(totals + (first * N + n * rows + row - first) * block + at));
  });
}

// The outputs of blocks `from` up to `end` of x [count][in].
inline void float_product(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end, const Result& to) {
  std::vector<float> totals(2 * count * block);
  if (count <= 4)  // more sums that do not wait for each other
    for (; from + 2 <= end; from += 2) blocks_product<2>(count, w, x, from, totals.data(), to);
  for (; from < end; from++) blocks_product<1>(count, w, x, from, totals.data(), to);
}

// Rows of a product: x [count][in], and the same rounded to 8 bits where a part of the weight takes them so.
struct Inputs {
  const float* x;
  const RoundedRows& rounded;
};

inline void product(int64_t count, const Weight& w, const Inputs& inputs, int64_t from, int64_t end, Result to) {
  const int64_t own = own_blocks(w);
  if (const int64_t last = std::min(end, own); from < last) {
    if (w.rounds) rounded_product(count, w, inputs.rounded, from, last, to);
    else float_product(count, w, inputs.x, from, last, to);
  }
  if (w.next) product(count, *w.next, inputs, std::max<int64_t>(from - own, 0), end - own, {to.y + w.out, to.stride, to.added});
}

// A block of a weight as float32 [out][in].
inline void unpack(const Weight& w, int64_t number, float* out) {
  float numbers[group * block];
  for (int64_t input = 0; input < w.in; input += group) {
    unpack_part(w, number, input, group, numbers);
    for (int64_t i = 0; i < block && number * block + i < w.out; i++)
      for (int64_t k = 0; k < group; k++) out[(number * block + i) * w.in + input + k] = numbers[k * block + i];
  }
}

// The nearest of 0 to 7 to numbers divided by a scale, and four.
inline Floats in_three_bits(Floats x, Floats one_over) {
  const Floats most = all(7), found = fused(x, one_over, all(4));
  return chosen(found > 0.0f, chosen(found < most, found, most), all(0)) + 12582912.0f - 12582912.0f;
}

// A block of a weight in 3 bits, as rows [32][in / 32] of ``three_bits``. The number furthest from zero becomes -4 times
// the scale, or a little less, whichever of some scales leaves the smallest squared error.
inline void narrow_block(const Weight& w, int64_t number, uint8_t* out) {
  constexpr int64_t size = form(three_bits).file_size;
  alignas(64) float numbers[group * block], scale[block];
  alignas(64) int32_t found[group * block];
  for (int64_t input = 0; input < w.in; input += group) {
    unpack_part(w, number, input, group, numbers);
    for (int at = 0; at < block; at += lanes) {
      Floats low = load(numbers + at), high = low;
      for (int k = 1; k < group; k++) {
        const Floats x = load(numbers + k * block + at);
        low = chosen(x < low, x, low), high = chosen(x > high, x, high);
      }
      const Floats furthest = chosen(-low > high, low, high);
      Floats best{}, least = all(INFINITY);
      for (int part = 20; part >= 14; part--) {
        Floats step = furthest * (part / -80.0f);
        for (int i = 0; i < lanes; i++) step[i] = to_half(step[i]);
        const Floats one_over = chosen(step * step > 0.0f, all(1) / step, all(0));
        Floats error{};
        for (int k = 0; k < group; k++) {
          const Floats x = load(numbers + k * block + at);
          const Floats off = fused(in_three_bits(x, one_over) - 4.0f, step, -x);
          error = fused(off, off, error);
        }
        best = chosen(error < least, step, best), least = chosen(error < least, error, least);
      }
      std::memcpy(scale + at, &best, sizeof best);
      const Floats one_over = chosen(best * best > 0.0f, all(1) / best, all(0));
      for (int k = 0; k < group; k++) {
        const Ints whole = __builtin_convertvector(in_three_bits(load(numbers + k * block + at), one_over), Ints);
        std::memcpy(found + k * block + at, &whole, sizeof whole);
      }
    }
    for (int64_t i = 0; i < block; i++) {
      uint8_t* to = out + (i * w.in + input) / group * size;
      const _Float16 half = _Float16(scale[i]);
      std::memcpy(to, &half, 2);
      std::memset(to + 2, 0, size - 2);
      for (int k = 0; k < group; k++) {
        const int32_t three = found[k * block + i], v = k / 4, byte = k % 4;
        if (v < 6) to[2 + v / 2 * 4 + byte] |= three << 3 * (v % 2);
        else to[2 + (v - 6) * 4 + byte] |= three << 6, to[10 + byte] |= three >> 2 << v;
      }
    }
  }
}

// The first inputs of a row of a weight, float32.
inline void one_row(const Weight& w, int64_t row, int64_t inputs, float* out) {
  float numbers[group * block];
  for (int64_t input = 0; input < inputs; input += group) {
    unpack_part(w, row / block, input, group, numbers);
    for (int64_t k = 0; k < group && input + k < inputs; k++) out[input + k] = numbers[k * block + row % block];
  }
}
