// Products of rows with weights in blocks of 32 outputs. What is stored becomes a float32 number, for a few rows in
// registers, for many in the processor's cache, and is multiplied as such. A sum of a row and an output is made in one
// order, however many rows there are.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "vectors.h"

constexpr int block = 32;                      // outputs that lie together
constexpr int group = 32;                      // inputs that do; and whose numbers share a scale, or 16 of them
constexpr int vectors = block / lanes;         // of outputs
constexpr int few_rows = registers / 4;        // whose sums stay in registers
constexpr int64_t part = 256;                  // inputs of a block whose numbers stay in the nearest cache

// A weight [out, in]: blocks [out / 32] of groups [in / 32]. There may be fewer outputs than these have, and inputs that
// are zeros.
// A group, by how its numbers are stored:
//   float32, bfloat16, float16: [32 inputs][32 outputs]
//   int8: the same, and scales
//   int4: words of 8 numbers from 0 to 15, the first input lowest [4][32 outputs], and scales
// Scales are pairs for each 32 or each 16 inputs: a factor [32 outputs] and what is added [32 outputs], each float32
// (`wide`) or float16: weight = number * factor + added.
enum Stored : int64_t { float32, bfloat16, float16, int8, int4 };

struct Weight {
  const uint8_t* blocks;
  const float* bias;
  int64_t in, out, stored, wide, each;  // each: inputs that share a scale
};

constexpr int bits_of(int64_t stored) { return stored == float32 ? 32 : stored <= float16 ? 16 : stored == int8 ? 8 : 4; }
constexpr bool scaled(int64_t stored) { return stored >= int8; }

inline int64_t numbers_size(const Weight& w) { return block * group * bits_of(w.stored) / 8; }
inline int64_t scale_size(const Weight& w) { return scaled(w.stored) ? 2 * block * (w.wide ? 4 : 2) : 0; }
inline int64_t group_size(const Weight& w) { return numbers_size(w) + scale_size(w) * (group / w.each); }
inline int64_t blocks_of(const Weight& w) { return (w.out + block - 1) / block; }

inline Floats scale_at(const Weight& w, const uint8_t* at, int place) {
  return w.wide ? load<Floats>(at + 4 * lanes * place) : halves(at + 2 * lanes * place);
}

// Eight inputs of B vectors of outputs after each other: those of whole blocks, or some of one.
template <Stored stored, int B>
struct Eight {
  Floats factor[B], added[B];
  Ints words[B];
  const uint8_t* at[B];

  void scales(const Weight& w, const uint8_t* from, int64_t next_block, int vector) {
    for (int b = 0; b < B; b++) {
      const int place = (vector + b) % vectors;
      factor[b] = scale_at(w, from + (vector + b) / vectors * next_block, place);
      added[b] = scale_at(w, from + (vector + b) / vectors * next_block, vectors + place);
    }
  }
  void numbers(const uint8_t* from, int64_t next_block, int vector) {
    for (int b = 0; b < B; b++) {
      const int place = (vector + b) % vectors;
      at[b] = from + (vector + b) / vectors * next_block + place * lanes * (stored == int4 ? 4 : bits_of(stored) / 8);
      if (stored == int4) words[b] = load<Ints>(at[b]);
    }
  }
  Floats weight(int b, int k) const {
    const uint8_t* number = at[b] + k * block * bits_of(stored) / 8;
    if constexpr (stored == float32) return load<Floats>(number);
    else if constexpr (stored == bfloat16) return upper_halves(number);
    else if constexpr (stored == float16) return halves(number);
    else if constexpr (stored == int8) return of_bytes(number) * factor[b] + added[b];
    else return of_four_bits(words[b], k) * factor[b] + added[b];
  }
};

// Asks for what will be read soon after these bytes: a processor that also computes asks too late.
template <Stored stored>
inline void fetch(const uint8_t* at, int64_t size) {
  for (int64_t line = 0; line < size; line += 64) {
    if constexpr (stored == float32) __builtin_prefetch(at + line + (16 << 10), 0, 2);
    else __builtin_prefetch(at + line + (4 << 10), 0, 3);
  }
}

// Calls use(input, eight) for each eight of some inputs, whole groups of them, of B vectors of outputs from the one of
// number `first` on.
template <Stored stored, int B, class Use>
inline void each_eight(const Weight& w, int64_t first, int64_t input, int64_t inputs, Use use) {
  const int64_t size = group_size(w), next_block = size * (w.in / group), numbers = numbers_size(w);
  const uint8_t* at = w.blocks + first / vectors * next_block + input / group * size;
  const int vector = B < vectors ? first % vectors : 0;
  Eight<stored, B> eight;
  for (const int64_t end = input + inputs; input < end; at += size) {
    const uint8_t* scales = at + numbers;
    for (int quarter = 0; quarter < 4; quarter++, input += 8) {
      if (scaled(stored) && (quarter == 0 || (quarter == 2 && w.each == 16))) {
        eight.scales(w, scales, next_block, vector);
        scales += scale_size(w);
      }
      eight.numbers(at + quarter * (numbers / 4), next_block, vector);
      for (int b = 0; b < B && vector == 0; b += vectors)
        fetch<stored>(at + b / vectors * next_block + quarter * (size / 4), size / 4);
      use(input, eight);
    }
  }
}

// Where a sum goes: y [rows][out], plus what is there or not.
struct Result {
  float* y;
  int64_t stride;
  bool added;
};

inline void put(const Weight& w, const Result& to, int64_t row, int64_t output, Floats total) {
  const int64_t left = w.out - output;
  if (left <= 0) return;
  float* y = to.y + row * to.stride + output;
  if (left >= lanes) {
    if (w.bias) total += load(w.bias + output);
    store(y, to.added ? load(y) + total : total);
    return;
  }
  for (int i = 0; i < left; i++) {
    const float one = total[i] + (w.bias ? w.bias[output + i] : 0);
    y[i] = to.added ? y[i] + one : one;
  }
}

// R rows of x [rows][in] and B vectors of outputs.
template <Stored stored, int R, int B>
void few(const Weight& w, const float* x, int64_t first, const Result& to) {
  Floats total[R][B] = {};
  each_eight<stored, B>(w, first, 0, w.in, [&](int64_t input, const Eight<stored, B>& eight) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      Floats weight[B];
      for (int b = 0; b < B; b++) weight[b] = eight.weight(b, k);
      for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) total[r][b] += weight[b] * x[r * w.in + input + k];
    }
  });
  for (int r = 0; r < R; r++)
    for (int b = 0; b < B; b++) put(w, to, r, (first + b) * lanes, total[r][b]);
}

template <Stored stored, int R = few_rows>
void few_rows_of(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end, const Result& to) {
  if (count < R) {
    if constexpr (R > 1) few_rows_of<stored, R - 1>(count, w, x, from, end, to);
    return;
  }
  from *= vectors, end *= vectors;
  if constexpr (R <= 2)  // more sums that do not wait for each other
    for (; from + 4 <= end; from += 4) few<stored, R, 4>(w, x, from, to);
  for (; from < end; from += 2) few<stored, R, 2>(w, x, from, to);
}

// Calls use(input, vector, numbers) for the numbers of each vector of outputs and each of some inputs of a block.
template <Stored stored, class Use>
inline void each_number(const Weight& w, int64_t number, int64_t input, int64_t inputs, Use use) {
  for (int first = 0; first < vectors; first += 2)
    each_eight<stored, 2>(w, number * vectors + first, input, inputs, [&](int64_t input, const Eight<stored, 2>& eight) {
      for (int k = 0; k < 8; k++)
        for (int b = 0; b < 2; b++) use(input + k, first + b, eight.weight(b, k));
    });
}

// R rows of x, `next` after each other, times numbers [inputs][32], added to totals [R][32].
template <int R = few_rows>
void add_tile(int64_t count, const float* numbers, int64_t inputs, const float* x, int64_t next, float* totals) {
  if (count < R) {
    if constexpr (R > 1) add_tile<R - 1>(count, numbers, inputs, x, next, totals);
    return;
  }
  for (int at = 0; at < block; at += 2 * lanes) {
    Floats total[R][2];
    for (int r = 0; r < R; r++)
      for (int b = 0; b < 2; b++) total[r][b] = load(totals + r * block + at + b * lanes);
    for (int64_t k = 0; k < inputs; k++) {
      const Floats first = load(numbers + k * block + at), second = load(numbers + k * block + at + lanes);
      for (int r = 0; r < R; r++) {
        total[r][0] += first * x[r * next + k];
        total[r][1] += second * x[r * next + k];
      }
    }
    for (int r = 0; r < R; r++)
      for (int b = 0; b < 2; b++) store(totals + r * block + at + b * lanes, total[r][b]);
  }
}

// Calls use(row, rows) for as few tiles of about as many rows.
template <class Use>
inline void each_tile(int64_t count, Use use) {
  const int64_t tiles = (count + few_rows - 1) / few_rows;
  for (int64_t i = 0; i < tiles; i++) use(count * i / tiles, count * (i + 1) / tiles - count * i / tiles);
}

template <Stored stored>
void many_rows_of(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end, const Result& to) {
  alignas(64) float numbers[part * block];
  std::vector<float> totals(count * block);
  for (; from < end; from++) {
    std::fill(totals.begin(), totals.end(), 0.0f);
    for (int64_t input = 0; input < w.in; input += part) {
      const int64_t inputs = std::min(part, w.in - input);
      each_number<stored>(w, from, input, inputs, [&](int64_t i, int vector, Floats found) {
        store(numbers + (i - input) * block + vector * lanes, found);
      });
      each_tile(count, [&](int64_t row, int64_t rows) {
        add_tile(rows, numbers, inputs, x + row * w.in + input, w.in, &totals[row * block]);
      });
    }
    for (int64_t row = 0; row < count; row++)
      for (int at = 0; at < block; at += lanes)
        put(w, to, row, from * block + at, load(&totals[row * block + at]));
  }
}

// Weights in float32 are numbers already: a block of them stays in the cache.
template <>
inline void many_rows_of<float32>(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end,
                             const Result& to) {
  for (; from < end; from++)
    each_tile(count, [&](int64_t row, int64_t rows) {
      few_rows_of<float32>(rows, w, x + row * w.in, from, from + 1, {to.y + row * to.stride, to.stride, to.added});
    });
}

// The outputs of blocks `from` up to `end` of x [count][in].
template <Stored stored>
void product(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end, const Result& to) {
  count <= few_rows ? few_rows_of<stored>(count, w, x, from, end, to) : many_rows_of<stored>(count, w, x, from, end, to);
}

// Calls use(stored) with how a weight is stored as a constant.
template <class Use>
inline void by_kind(const Weight& w, Use use) {
  switch (w.stored) {
    case bfloat16: return use(std::integral_constant<Stored, bfloat16>());
    case float16: return use(std::integral_constant<Stored, float16>());
    case int8: return use(std::integral_constant<Stored, int8>());
    case int4: return use(std::integral_constant<Stored, int4>());
    default: return use(std::integral_constant<Stored, float32>());
  }
}

inline void product(int64_t count, const Weight& w, const float* x, int64_t from, int64_t end, const Result& to) {
  by_kind(w, [&](auto stored) { product<stored>(count, w, x, from, end, to); });
}

// A block of a weight as float32 [out][in].
inline void unpack(const Weight& w, int64_t number, float* out) {
  by_kind(w, [&](auto stored) {
    each_number<stored>(w, number, 0, w.in, [&](int64_t input, int vector, Floats numbers) {
      const int64_t first = number * block + vector * lanes;
      for (int64_t i = 0; i < lanes && first + i < w.out; i++) out[(first + i) * w.in + input] = numbers[i];
    });
  });
}

// The first inputs of a row of a weight, float32.
inline void one_row(const Weight& w, int64_t row, int64_t inputs, float* out) {
  const int own = row % block / lanes, lane = row % lanes;
  by_kind(w, [&](auto stored) {
    each_number<stored>(w, row / block, 0, w.in, [&](int64_t input, int vector, Floats numbers) {
      if (vector == own && input < inputs) out[input] = numbers[lane];
    });
  });
}
