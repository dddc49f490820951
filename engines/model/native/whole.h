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

// Inputs rounded to 8 bits, for weights whose scales are shared by 32 or by 256 inputs: of all rows one after the other.
struct Rounded {
  int8_t* numbers;  // [in]
  float* scale;     // [in / 32]; of 256 inputs, the first of them
  float* sum;       // [in / 16]: of each 16 numbers; where 32 share a scale, of these, times the scale
  float* sum_32;    // [in / 32]: of each 32 numbers; where these share a scale, times it, rounded as by llama.cpp

  Rounded row(int64_t r, int64_t in) const {
    return {numbers + r * in, scale + r * in / 32, sum + r * in / 16, sum_32 + r * in / 32};
  }
};

inline float to_half(float number) { return float(_Float16(number)); }

// The numbers nearest to x [count] * factor, which lie between -127 and 127.
inline void nearest(const float* x, float factor, int count, int8_t* out) {
  for (int i = 0; i < count; i += lanes) {
    const Floats shifted = load(x + i) * factor + 12582912.0f;
    const Bytes bytes = __builtin_convertvector((Ints)shifted - 0x4b400000, Bytes);
    std::memcpy(out + i, &bytes, sizeof bytes);
  }
}

inline int sum_of(const int8_t* numbers, int count) {
  int found = 0;
  for (int i = 0; i < count; i++) found += numbers[i];
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

// Inputs that share a scale: those of llama.cpp's Q8_0 and Q8_1, or of its Q8_K.
inline void round_span(const float* x, int span, int64_t at, const Rounded& to) {
  const float most = largest_size(x + at, span), inverse = most ? 127 / most : 0;
  nearest(x + at, inverse, span, to.numbers + at);
  if (span == 256) {
    to.scale[at / 32] = inverse ? 1 / inverse : 0;
    for (int64_t i = at; i < at + span; i += 16) to.sum[i / 16] = sum_of(to.numbers + i, 16);
    for (int64_t i = at; i < at + span; i += 32) to.sum_32[i / 32] = to.sum[i / 16] + to.sum[i / 16 + 1];
    return;
  }
  const float scale = most / 127, total = sum_of(to.numbers + at, span);
  to.scale[at / 32] = to_half(scale);
  to.sum[at / 16] = to_half(scale) * total, to.sum_32[at / 32] = to_half(scale * total);
}

// Rows rounded for the parts of a weight, in the ways that these take them.
class RoundedRows {
 public:
  // Room for so many rows of as many inputs as the weight has.
  void reserve(const Weight& w, int64_t count) {
    for (const Weight* part = &w; part; part = part->next)
      if (part->rounds) of(*part).reserve(count * w.in);
  }

  // Rounds x [count][in], together with the other members, in the ways that the weight needs.
  void fill(const Weight& w, int64_t count, const float* x, Member& member) {
    bool ways[2] = {};
    for (const Weight* part = &w; part; part = part->next)
      if (part->rounds) ways[large(*part)] = true;
    for (int way = 0; way < 2; way++)
      if (ways[way]) fill(rooms[way].rows, way ? 256 : group, count * w.in, x, member);
    if (ways[0] || ways[1]) member.sync();
  }

  const Rounded& rows(const Weight& part) const { return rooms[large(part)].rows; }

 private:
  struct Room {
    std::vector<int8_t> numbers;
    std::vector<float> floats;
    Rounded rows;

    void reserve(int64_t count) {
      if (int64_t(numbers.size()) >= count) return;
      numbers.resize(count), floats.resize(count / 8);
      rows = {numbers.data(), floats.data(), floats.data() + count / 32, floats.data() + count / 32 + count / 16};
    }
  } rooms[2];

  static bool large(const Weight& part) { return form(part.stored).span == 256; }
  Room& of(const Weight& part) { return rooms[large(part)]; }

  static void fill(const Rounded& to, int span, int64_t inputs, const float* x, Member& member) {
    const int64_t spans = inputs / span;
    for (int64_t i = member.from(spans); i < member.to(spans); i++) round_span(x, span, i * span, to);
  }
};

// Asks for what will be read soon after these bytes.
inline void fetch(const uint8_t* at, int64_t size) {
  for (int64_t line = 0; line < size; line += 64) __builtin_prefetch(at + line + (4 << 10), 0, 3);
}

// Up to R rows and the outputs of a block.
template <Stored kind, int R>
void rounded_block(int64_t count, const Weight& w, const Rounded& x, int64_t number, const Result& to) {
  constexpr Form f = form(kind);
  constexpr int groups = f.span / group, each = f.each ? f.each : group;
  const uint8_t* at = w.blocks + number * block_size(w);
  Floats total[vectors][R] = {};
  Rounded row[R];
  for (int r = 0; r < R; r++) row[r] = x.row(std::min<int64_t>(r, count - 1), w.in);
  for (int64_t input = 0; input < w.in; input += f.span, at += span_size(kind)) {
#pragma GCC unroll 1
    for (int vector = 0; vector < vectors; vector++) {
      const Scales<kind> scales(at, vector);
      Numbers<kind> numbers(at, vector, 0);
      Floats part[R] = {};
      if (R < 8) fetch(at + vector * (span_size(kind) / vectors), span_size(kind) / vectors);
#pragma GCC unroll 1
      for (int place = 0; place < groups; place++) {
        if (groups > 1) numbers.move_to(place);
#pragma GCC unroll 2
        for (int half = 0; half < group / each; half++) {
          Ints dots[R] = {};
          const int64_t now = input + place * group + half * each;
#pragma GCC unroll 8
          for (int v = 0; v < each / 4; v++) {
            const Ints four = numbers.at(half * (each / 4) + v);
            for (int r = 0; r < R; r++) dots[r] = with_products(dots[r], four, row[r].numbers + now + 4 * v);
          }
          const int small = (place * group + half * each) / each;
          const Floats factor = scales.factor(f.each ? small : 0), added = scales.added(f.each ? small : 0, factor);
          for (int r = 0; r < R; r++) {
            if constexpr (f.span == group) {
              const float sum = f.least ? row[r].sum_32[now / 32] : row[r].sum[now / 16];
              total[vector][r] = fused(floats(dots[r]), factor * row[r].scale[now / 32], total[vector][r]);
              total[vector][r] = fused(added, all(sum), total[vector][r]);
            } else {
              const float sum = each == 32 ? row[r].sum_32[now / 32] : row[r].sum[now / 16];
              part[r] = fused(floats(dots[r]), factor, part[r]);
              part[r] = fused(added, all(sum), part[r]);
            }
          }
        }
      }
      if constexpr (f.span != group)
        for (int r = 0; r < R; r++) total[vector][r] = fused(part[r], all(row[r].scale[input / 32]), total[vector][r]);
    }
  }
  for (int r = 0; r < R && r < count; r++)
    for (int vector = 0; vector < vectors; vector++)
      put(w, to, r, number * block + vector * lanes, total[vector][r]);
}

template <Stored kind>
void rounded_blocks(int64_t count, const Weight& w, const Rounded& x, int64_t from, int64_t end, const Result& to) {
  constexpr int most = 8;
  const int64_t tiles = (count + most - 1) / most;
  for (; from < end; from++)
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t row = count * i / tiles, rows = count * (i + 1) / tiles - row;
      const auto of = rows == 1 ? rounded_block<kind, 1> : rows == 2 ? rounded_block<kind, 2>
                      : rows <= 4 ? rounded_block<kind, 4> : rounded_block<kind, 8>;
      of(rows, w, x.row(row, w.in), from, {to.y + row * to.stride, to.stride, to.added});
    }
}

inline void rounded_product(int64_t count, const Weight& w, const Rounded& x, int64_t from, int64_t end,
                            const Result& to) {
  by_whole_kind(w.stored, [&](auto kind) { rounded_blocks<kind>(count, w, x, from, end, to); });
}
