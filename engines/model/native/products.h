// Products of rows with weights in blocks of 32 outputs. What is stored is made a float32 number in registers, or for
// many rows once in the processor's cache, and multiplied as such. A sum of a row and an output is made in one order,
// however many rows there are.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "vectors.h"

constexpr int block = 2 * lanes;  // outputs that lie together
constexpr int group = 32;         // inputs that do; and whose numbers share a scale, or 16 of them
constexpr int most_rows = 8;        // of a tile
constexpr int unpacked_from = 64;   // rows for which unpacking into the cache pays

// A weight [out, in]: blocks [out / 32] of groups [in / 32]. There may be fewer outputs than these have, and inputs that
// are zeros.
// A group, by bits of a number:
//   32: float32 [32 inputs][32 outputs]
//    4: words of 8 numbers from 0 to 15, the first input lowest [4][32 outputs], scales
//    8: int8 [32 inputs][32 outputs], scales
// Scales are pairs for each 32 or each 16 inputs: a factor [32 outputs] and what is added [32 outputs], each float32
// (`wide`) or float16: weight = number * factor + added.
struct Weight {
  const uint8_t* blocks;
  const float* bias;
  int64_t in, out, bits, wide, each;  // each: inputs that share a scale
};

inline int64_t numbers_size(const Weight& w) { return block * group * w.bits / 8; }
inline int64_t scale_size(const Weight& w) { return w.bits == 32 ? 0 : 2 * block * (w.wide ? 4 : 2); }
inline int64_t group_size(const Weight& w) { return numbers_size(w) + scale_size(w) * (group / w.each); }
inline int64_t blocks_of(const Weight& w) { return (w.out + block - 1) / block; }

inline Floats scale_at(const Weight& w, const uint8_t* at, int place) {
  return w.wide ? load<Floats>(at + 4 * lanes * place) : halves(at + 2 * lanes * place);
}

// Eight inputs of B / 2 blocks after each other: numbers of 16 outputs each.
template <int bits, int B>
struct Eight {
  Floats factor[B], added[B];
  Ints words[B];
  const uint8_t* at[B];

  void scales(const Weight& w, const uint8_t* from, int64_t next_block) {
    for (int b = 0; b < B; b++) {
      factor[b] = scale_at(w, from + b / 2 * next_block, b % 2);
      added[b] = scale_at(w, from + b / 2 * next_block, 2 + b % 2);
    }
  }
  void numbers(const uint8_t* from, int64_t next_block) {
    for (int b = 0; b < B; b++) {
      at[b] = from + b / 2 * next_block + b % 2 * (bits == 4 ? 4 * lanes : lanes * bits / 8);
      if (bits == 4) words[b] = load<Ints>(at[b]);
    }
  }
  Floats weight(int b, int k) const {
    if constexpr (bits == 32) return load<Floats>(at[b] + k * block * 4);
    else if constexpr (bits == 4) return of_four_bits(words[b], k) * factor[b] + added[b];
    else return of_bytes(at[b] + k * block) * factor[b] + added[b];
  }
};

// Asks for what will be read soon after these bytes: a processor that also computes asks too late.
template <int bits>
inline void fetch(const uint8_t* at, int64_t size) {
  for (int64_t line = 0; line < size; line += 64) {
    if constexpr (bits == 32) __builtin_prefetch(at + line + (16 << 10), 0, 2);
    else __builtin_prefetch(at + line + (4 << 10), 0, 3);
  }
}

// Calls use(input, eight) for each eight inputs of B / 2 blocks.
template <int bits, int B, class Use>
inline void each_eight(const Weight& w, int64_t first_block, Use use) {
  const int64_t size = group_size(w), next_block = size * (w.in / group), numbers = numbers_size(w);
  const uint8_t* at = w.blocks + first_block * next_block;
  Eight<bits, B> eight;
  for (int64_t input = 0; input < w.in; at += size) {
    const uint8_t* scales = at + numbers;
    for (int part = 0; part < 4; part++, input += 8) {
      if (bits != 32 && (part == 0 || (part == 2 && w.each == 16))) {
        eight.scales(w, scales, next_block);
        scales += scale_size(w);
      }
      eight.numbers(at + part * (numbers / 4), next_block);
      fetch<bits>(at + part * (size / 4), size / 4);
      if (B > 2) fetch<bits>(at + next_block + part * (size / 4), size / 4);
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

// R rows of x [rows][in] and B / 2 blocks; the sums stay in registers.
template <int bits, int R, int B>
void tile(const Weight& w, const float* x, int64_t row, int64_t first_block, const Result& to, int64_t output) {
  Floats total[R][B] = {};
  x += row * w.in;
  each_eight<bits, B>(w, first_block, [&](int64_t input, const Eight<bits, B>& eight) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      Floats weight[B];
      for (int b = 0; b < B; b++) weight[b] = eight.weight(b, k);
      for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) total[r][b] += weight[b] * x[r * w.in + input + k];
    }
  });
  for (int r = 0; r < R; r++)
    for (int b = 0; b < B; b++) put(w, to, row + r, output + b * lanes, total[r][b]);
}

template <int bits, int R = most_rows>
void rows(int64_t count, const Weight& w, const float* x, int64_t row, int64_t from, int64_t to_block, const Result& to,
          int64_t output) {
  if (count < R) {
    if constexpr (R > 1) rows<bits, R - 1>(count, w, x, row, from, to_block, to, output);
    return;
  }
  if constexpr (R <= 2)  // with few rows, more sums that do not wait for each other
    for (; from + 2 <= to_block; from += 2, output += 2 * block) tile<bits, R, 4>(w, x, row, from, to, output);
  for (; from < to_block; from++, output += block) tile<bits, R, 2>(w, x, row, from, to, output);
}

// All rows, in tiles of about as many.
template <int bits>
void tiles(int64_t count, const Weight& w, const float* x, int64_t from, int64_t to_block, const Result& to,
           int64_t output) {
  const int64_t number = (count + most_rows - 1) / most_rows;
  for (int64_t i = 0; i < number; i++) {
    const int64_t row = count * i / number;
    rows<bits>(count * (i + 1) / number - row, w, x, row, from, to_block, to, output);
  }
}

// Calls use(input, half, numbers) for the numbers of 16 outputs and each input of a block.
template <int bits, class Use>
inline void each_number(const Weight& w, int64_t number, Use use) {
  each_eight<bits, 2>(w, number, [&](int64_t input, const Eight<bits, 2>& eight) {
    for (int k = 0; k < 8; k++)
      for (int half = 0; half < 2; half++) use(input + k, half, eight.weight(half, k));
  });
}

// The outputs of blocks `from` up to `to_block` of x [count][in].
template <int bits>
void product(int64_t count, const Weight& w, const float* x, int64_t from, int64_t to_block, const Result& to) {
  if (count <= most_rows) return tiles<bits>(count, w, x, from, to_block, to, from * block);
  const bool unpacking = bits != 32 && count >= unpacked_from;
  std::vector<float> unpacked(unpacking ? w.in * block : 0);
  Weight plain = w;
  plain.blocks = (const uint8_t*)unpacked.data(), plain.bits = 32, plain.each = group;
  for (; from < to_block; from++) {  // a block stays in the cache for all tiles
    if (!unpacking) {
      tiles<bits>(count, w, x, from, from + 1, to, from * block);
      continue;
    }
    each_number<bits>(w, from, [&](int64_t input, int half, Floats numbers) {
      store(&unpacked[input * block + half * lanes], numbers);
    });
    tiles<32>(count, plain, x, 0, 1, to, from * block);
  }
}

// Calls use(of_bits) with the bits of a weight's numbers as a constant.
template <class Use>
inline void by_bits(const Weight& w, Use use) {
  switch (w.bits) {
    case 4: return use(std::integral_constant<int, 4>());
    case 8: return use(std::integral_constant<int, 8>());
    default: return use(std::integral_constant<int, 32>());
  }
}

inline void product(int64_t count, const Weight& w, const float* x, int64_t from, int64_t to_block, const Result& to) {
  by_bits(w, [&](auto bits) { product<bits>(count, w, x, from, to_block, to); });
}

// A block of a weight as float32 [out][in].
inline void unpack(const Weight& w, int64_t number, float* out) {
  by_bits(w, [&](auto bits) {
    each_number<bits>(w, number, [&](int64_t input, int half, Floats numbers) {
      const int64_t first = number * block + half * lanes;
      for (int64_t i = 0; i < lanes && first + i < w.out; i++) out[(first + i) * w.in + input] = numbers[i];
    });
  });
}

// The first inputs of a row of a weight, float32.
inline void one_row(const Weight& w, int64_t row, int64_t inputs, float* out) {
  const int half = row % block / lanes, lane = row % lanes;
  by_bits(w, [&](auto bits) {
    each_number<bits>(w, row / block, [&](int64_t input, int of, Floats numbers) {
      if (of == half && input < inputs) out[input] = numbers[lane];
    });
  });
}
