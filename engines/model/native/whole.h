// Products of whole numbers: inputs are rounded to 8 bits, as llama.cpp does it, and multiplied with what is stored.
//
// Sums of whole numbers have no order. Those of float32 between them are made in one order for a row and an output,
// however many rows there are.
#pragma once

#include <cmath>
#include <vector>

#include "stored.h"
#include "team.h"

// A weight [out, in]: blocks [out / 32] of spans [in / span] (``stored.h``), or of groups [in / 32] of numbers
// [32 inputs][32 outputs] that are float32, bfloat16 or float16. There may be fewer outputs than these have, and inputs
// that are zeros. The outputs of `next`, of as many inputs, follow.
struct Weight {
  const uint8_t* blocks;
  const float* bias;
  int64_t in, out, stored, rounds;  // rounds: inputs of products are rounded to 8 bits (``whole.h``)
  const Weight* next;
};

constexpr int number_size(int64_t stored) { return stored == float32 ? 4 : 2; }

inline int64_t own_blocks(const Weight& w) { return (w.out + block - 1) / block; }
inline int64_t block_size(const Weight& w) {
  if (!whole_numbers(w.stored)) return w.in * block * number_size(w.stored);
  return w.in / form(w.stored).span * span_size(w.stored);
}
inline int64_t blocks_of(const Weight& w) { return own_blocks(w) + (w.next ? blocks_of(*w.next) : 0); }
inline int64_t outputs_of(const Weight& w) { return w.out + (w.next ? outputs_of(*w.next) : 0); }

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

constexpr int tile_rows = 8;  // whose products with a block are made together

// Some of `count` rows: about as many in each tile, in places that there is code for.
struct Tile {
  int64_t first, rows;
  int width;

  static int64_t number_of(int64_t count) { return (count + tile_rows - 1) / tile_rows; }
  static Tile at(int64_t count, int64_t number) {
    const int64_t tiles = number_of(count), first = count * number / tiles, rows = count * (number + 1) / tiles - first;
    return {first, rows, int(rows <= 4 ? rows : (rows + 1) / 2 * 2)};
  }
};

// Inputs of a tile rounded to 8 bits, for weights whose scales are shared by 32 or by 256 inputs: the rows' [width] lie
// beside each other, four inputs of a row together.
struct Rounded {
  int8_t* numbers;  // [in / 4][width][4]
  float* scale;     // [in / span][width]
  float *sum, *sum_rounded;  // [in / 32][width] where 32 inputs share a scale: their sum times it, also as llama.cpp
                             // rounds it to a half
  int16_t *sum_16, *sum_32;  // where 256 do: sums of so many numbers [in / 32 or in / 64][width][2]
};

inline float to_half(float number) { return float(_Float16(number)); }

// The numbers nearest to x [count] * factor, which lie between -127 and 127; four of them each `apart` from the next.
inline void nearest(const float* x, float factor, int count, int8_t* out, int64_t apart) {
  for (int i = 0; i < count; i += lanes) {
    const Floats shifted = load(x + i) * factor + 12582912.0f;
    const Bytes bytes = __builtin_convertvector((Ints)shifted - 0x4b400000, Bytes);
    for (int four = 0; four < lanes; four += 4)
      std::memcpy(out + (i + four) / 4 * apart, (const int8_t*)&bytes + four, 4);
  }
}

// The sum of numbers, four of them each `apart` from the next.
inline int sum_of(const int8_t* numbers, int count, int64_t apart) {
  int found = 0;
  for (int i = 0; i < count; i += 4, numbers += apart) found += numbers[0] + numbers[1] + numbers[2] + numbers[3];
  return found;
}

inline float largest_size(const float* x, int count) {
  Floats most = {};
  for (int i = 0; i < count; i += lanes) {
    const Floats size = (Floats)((Ints)load(x + i) & 0x7fffffff);
    most = chosen(size > most, size, most);
  }
  return largest(most);
}

// Inputs of a row that share a scale, those from `at` on: as llama.cpp's Q8_0 and Q8_1, or as its Q8_K.
inline void round_span(const float* x, int span, int64_t at, int64_t row, int64_t width, const Rounded& to) {
  const float most = largest_size(x + at, span), inverse = most ? 127 / most : 0;
  int8_t* numbers = to.numbers + (at / 4 * width + row) * 4;
  nearest(x + at, inverse, span, numbers, 4 * width);
  const int64_t place = at / span * width + row;
  if (span == 256) {
    to.scale[place] = inverse ? 1 / inverse : 0;
    for (int64_t i = 0; i < span; i += 32) {
      int16_t* halves = to.sum_16 + ((at + i) / 32 * width + row) * 2;
      for (int half = 0; half < 2; half++)
        halves[half] = sum_of(numbers + (i / 4 + 4 * half) * 4 * width, 16, 4 * width);
      to.sum_32[((at + i) / 64 * width + row) * 2 + i / 32 % 2] = halves[0] + halves[1];
    }
    return;
  }
  const float scale = most / 127, total = sum_of(numbers, span, 4 * width);
  to.scale[place] = to_half(scale);
  to.sum[place] = to_half(scale) * total, to.sum_rounded[place] = to_half(scale * total);
}

// Rows rounded for the parts of a weight, in the ways that these take them.
class RoundedRows {
 public:
  // Room for so many rows of as many inputs as the weight has.
  void reserve(const Weight& w, int64_t count) {
    for (const Weight* part = &w; part; part = part->next)
      if (part->rounds) of(*part).reserve(Tile::number_of(count) * tile_rows * w.in);
  }

  // Rounds x [count][in], together with the other members, in the ways that the weight needs.
  void fill(const Weight& w, int64_t count, const float* x, Member& member) {
    bool ways[2] = {};
    for (const Weight* part = &w; part; part = part->next)
      if (part->rounds) ways[large(*part)] = true;
    for (int way = 0; way < 2; way++)
      if (ways[way]) rooms[way].fill(way ? 256 : group, w.in, count, x, member);
    if (ways[0] || ways[1]) member.sync();
  }

  Rounded tile(const Weight& part, int64_t number) const { return rooms[large(part)].tile(number, part.in); }

 private:
  struct Room {
    std::vector<int8_t> numbers;
    std::vector<float> scales, sums;

    void reserve(int64_t count) {
      if (int64_t(numbers.size()) >= count) return;
      numbers.resize(count), scales.resize(count / group), sums.resize(count / group * 2);
    }

    Rounded tile(int64_t number, int64_t in) const {
      const int64_t before = number * tile_rows * in;
      float *scale = (float*)scales.data() + before / group, *sum = (float*)sums.data() + before / group * 2;
      float* second = sum + tile_rows * in / group;
      return {(int8_t*)numbers.data() + before, scale, sum, second, (int16_t*)sum, (int16_t*)second};
    }

    void fill(int span, int64_t in, int64_t count, const float* x, Member& member) const {
      const int64_t spans = in / span, all = Tile::number_of(count);
      for (int64_t number = 0, i = 0; number < all; number++) {
        const Tile own = Tile::at(count, number);
        const Rounded to = tile(number, in);
        for (int64_t row = 0; row < own.rows; row++)
          for (int64_t s = 0; s < spans; s++, i++)
            if (i >= member.from(count * spans) && i < member.to(count * spans))
              round_span(x + (own.first + row) * in, span, s * span, row, own.width, to);
      }
    }
  } rooms[2];

  static bool large(const Weight& part) { return form(part.stored).span == 256; }
  Room& of(const Weight& part) { return rooms[large(part)]; }
};

// Asks for what will be read soon after these bytes.
inline void fetch(const uint8_t* at, int64_t size) {
  for (int64_t line = 0; line < size; line += 64) __builtin_prefetch(at + line + (4 << 10), 0, 3);
}

// Products of R rows with a vector of outputs in a span whose inputs share a scale.
template <Stored kind, int R>
void add_span_of_32(const uint8_t* at, int vector, int64_t input, const Rounded& x, Floats* total) {
  using Sums = Dots<most(kind)>;
  constexpr Form f = form(kind);
  constexpr int run = std::min(8, Sums::words), offset = f.offset - Sums::offset;
  const Scales<kind> scales(at, vector);
  const Numbers<kind> numbers(at, vector, 0);
  const int8_t* with = x.numbers + input * R;
  const int64_t place = input / group * R;
  Ints found[R] = {};
  Sums dots[R];
#pragma GCC unroll 8
  for (int v = 0; v < 8; v++) {
    const Ints four = numbers.at(v);
    for (int r = 0; r < R; r++) dots[r].add(four, word(with + (v * R + r) * 4));
    if ((v + 1) % run == 0)
      for (int r = 0; r < R; r++) found[r] += dots[r].sum(), dots[r] = {};
  }
  for (int r = 0; r < R; r++)
    total[r] = fused(floats(found[r]), scales.scale * x.scale[place + r], total[r]);
  if constexpr (f.least)
    for (int r = 0; r < R; r++) total[r] = fused(scales.second, all(x.sum_rounded[place + r]), total[r]);
  else if constexpr (offset != 0) {
    const Floats least = scales.scale * float(-offset);
    for (int r = 0; r < R; r++) total[r] = fused(least, all(x.sum[place + r]), total[r]);
  }
}

// The same where small numbers multiply a scale that 256 inputs share: up to there, all numbers are whole.
template <Stored kind, int R>
void add_span_of_256(const uint8_t* at, int vector, int64_t input, const Rounded& x, Floats* total) {
  using Sums = Dots<most(kind)>;
  constexpr Form f = form(kind);
  constexpr int words = f.each / 4, run = std::min(words, Sums::words), offset = f.offset - Sums::offset;
  const Scales<kind> scales(at, vector);
  Numbers<kind> numbers(at, vector, 0);
  const int8_t* with = x.numbers + input * R;
  const int16_t* sums = f.each == 16 ? x.sum_16 + input / 16 * R : x.sum_32 + input / 32 * R;
  Ints found[R] = {}, least[R] = {}, before{};
#pragma GCC unroll 1
  for (int place = 0; place < f.span / group; place++, with += group * R) {
    numbers.move_to(place);
#pragma GCC unroll 2
    for (int half = 0; half < group / f.each; half++) {
      const int small = place * (group / f.each) + half;
      const Ints times = scales.times(small);
      Sums dots[R];
#pragma GCC unroll 8
      for (int v = 0; v < words; v++) {
        const Ints four = numbers.at(half * words + v);
        for (int r = 0; r < R; r++) dots[r].add(four, word(with + ((half * words + v) * R + r) * 4));
        if ((v + 1) % run == 0)
          for (int r = 0; r < R; r++) found[r] += dots[r].times(times), dots[r] = {};
      }
      if constexpr (f.least || offset != 0) {
        const Ints own = f.least ? scales.least(small) : times;
        if (small % 2)
          for (int r = 0; r < R; r++)
            least[r] += of_pairs(before & 0xffff | own << 16, word(sums + (small / 2 * R + r) * 2));
        before = own;
      }
    }
  }
  const float* scale = x.scale + input / f.span * R;
  for (int r = 0; r < R; r++) {
    Floats sum;
    if constexpr (f.least) sum = fused(floats(least[r]), -scales.second, floats(found[r]) * scales.scale);
    else sum = floats(found[r] - least[r] * offset) * scales.scale;
    total[r] = fused(sum, all(scale[r]), total[r]);
  }
}

// A tile of R rows, or one less, and the outputs of a block.
template <Stored kind, int R>
void rounded_block(int64_t count, const Weight& w, const Rounded& x, int64_t number, const Result& to) {
  constexpr Form f = form(kind);
  const uint8_t* at = w.blocks + number * block_size(w);
  Floats total[vectors][R] = {};
  for (int64_t input = 0; input < w.in; input += f.span, at += span_size(kind))
#pragma GCC unroll 1
    for (int vector = 0; vector < vectors; vector++) {
      if (R < tile_rows) fetch(at + vector * (span_size(kind) / vectors), span_size(kind) / vectors);
      if constexpr (f.span == group) add_span_of_32<kind, R>(at, vector, input, x, total[vector]);
      else add_span_of_256<kind, R>(at, vector, input, x, total[vector]);
    }
  for (int r = 0; r < R && r < count; r++)
    for (int vector = 0; vector < vectors; vector++)
      put(w, to, r, number * block + vector * lanes, total[vector][r]);
}

template <Stored kind>
void rounded_blocks(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end, const Result& to) {
  for (; from < end; from++)
    for (int64_t i = 0; i < Tile::number_of(count); i++) {
      const Tile own = Tile::at(count, i);
      const auto of = own.width == 1 ? rounded_block<kind, 1> : own.width == 2 ? rounded_block<kind, 2>
                      : own.width == 3 ? rounded_block<kind, 3> : own.width == 4 ? rounded_block<kind, 4>
                      : own.width == 6 ? rounded_block<kind, 6> : rounded_block<kind, 8>;
      of(own.rows, w, x.tile(w, i), from, {to.y + own.first * to.stride, to.stride, to.added});
    }
}

inline void rounded_product(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end,
                            const Result& to) {
  by_whole_kind(w.stored, [&](auto kind) { rounded_blocks<kind>(count, w, x, from, end, to); });
}
