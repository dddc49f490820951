// Products of integers: inputs are rounded to 8 bits, as llama.cpp does it, and multiplied with what is stored.
//
// Sums of integers have no order. Those of float32 between them are made in one order for a row and an output,
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

// Rows that are multiplied together. Tiles are about equally large; `width` is the number of rows that the code is for,
// which may be one more.
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

// Not float(_Float16(number)) where it can be helped: GCC 12 leaves both conversions out of vectors in AVX512-FP16.
inline float to_half(float number) {
#ifdef __F16C__
  return _cvtsh_ss(_cvtss_sh(number, _MM_FROUND_TO_NEAREST_INT));
#else
  return float(_Float16(number));
#endif
}

// The numbers nearest to x [count] * factor, which lie between -127 and 127; four of them each `apart` from the next.
// Returns their sum.
inline int nearest(const float* x, float factor, int count, int8_t* out, int64_t apart) {
  Ints all{};
  for (int i = 0; i < count; i += lanes) {
    const Floats shifted = load(x + i) * factor + 12582912.0f;
    const Ints numbers = (Ints)shifted - 0x4b400000;
    const Bytes bytes = __builtin_convertvector(numbers, Bytes);
    for (int four = 0; four < lanes; four += 4)
      std::memcpy(out + (i + four) / 4 * apart, (const int8_t*)&bytes + four, 4);
    all += numbers;
  }
  return sum(all);
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
  const int64_t place = at / span * width + row;
  if (span == 256) {
    to.scale[place] = inverse ? 1 / inverse : 0;
    for (int64_t i = 0; i < span; i += 32) {
      int16_t* halves = to.sum_16 + ((at + i) / 32 * width + row) * 2;
      for (int half = 0; half < 2; half++)
        halves[half] = nearest(
            x + at + i + 16 * half, inverse, 16, numbers + (i / 4 + 4 * half) * 4 * width, 4 * width);
      to.sum_32[((at + i) / 64 * width + row) * 2 + i / 32 % 2] = halves[0] + halves[1];
    }
    return;
  }
  const float scale = most / 127, total = nearest(x + at, inverse, span, numbers, 4 * width);
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
      const int64_t spans = in / span;
      for (int64_t number = 0; number < Tile::number_of(count); number++) {
        const Tile own = Tile::at(count, number);
        const Rounded to = tile(number, in);
        // All rows of a span by one member: they lie in the same lines of the cache.
        for (int64_t s = member.from(spans); s < member.to(spans); s++)
          for (int64_t row = 0; row < own.rows; row++)
            round_span(x + (own.first + row) * in, span, s * span, row, own.width, to);
      }
    }
  } rooms[2];

  static bool large(const Weight& part) { return form(part.stored).span == 256; }
  Room& of(const Weight& part) { return rooms[large(part)]; }
};

// Asks for what will be read soon after these bytes: in the second cache, where many requests can be open, and then in
// the nearest one.
inline void fetch(const uint8_t* at, int64_t size) {
  for (int64_t line = 0; line < size; line += 64) {
    __builtin_prefetch(at + line + (12 << 10), 0, 2);
    __builtin_prefetch(at + line + (4 << 10), 0, 3);
  }
}

// The outputs of blocks `from` up to `end` of rounded rows (``whole.cpp``).
void rounded_product(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end, const Result& to);
