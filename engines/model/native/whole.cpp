// Products of rounded rows with what is stored as integers.
#include "whole.h"

namespace {

// Vectors of outputs that are multiplied together with R rows: an input that was loaded serves all of them. With a small
// number for every 16 inputs there are too many sums for that.
template <Stored kind, int R>
constexpr int together_of = registers == 32 && vectors == 2 && (form(kind).each != 16 || R <= 2) ? 2 : 1;

// For each of R rows, and each of the vectors; their sums stay in registers only where the loop is gone.
#define OF_ROWS(r) _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)
#define OF_VECTORS(n) _Pragma("GCC unroll 2") for (int n = 0; n < at_once; n++)

// Products of R rows with vectors of outputs in a span whose inputs share a scale.
template <Stored kind, int R>
void add_span_of_32(const uint8_t* at, int vector, int64_t input, const Rounded& x, Floats (*total)[R]) {
  using Sums = Dots<most(kind)>;
  constexpr Form f = form(kind);
  constexpr int at_once = together_of<kind, R>;
  constexpr int run = std::min(8, Sums::words), offset = f.offset - Sums::offset;
  const int8_t* with = x.numbers + input * R;
  const int64_t place = input / group * R;
  Scales<kind> scales[at_once];
  Numbers<kind> numbers[at_once];
  Ints found[at_once][R] = {};
  Sums dots[at_once][R];
  OF_VECTORS(n) scales[n] = {at, vector + n}, numbers[n] = {at, vector + n, 0};
#pragma GCC unroll 8
  for (int v = 0; v < 8; v++) {
    Ints four[at_once];
    OF_VECTORS(n) four[n] = numbers[n].at(v);
    OF_ROWS(r) {
      const Ints input_four = word(with + (v * R + r) * 4);
      OF_VECTORS(n) dots[n][r].add(four[n], input_four);
    }
    if ((v + 1) % run == 0)
      OF_VECTORS(n) OF_ROWS(r) found[n][r] += dots[n][r].sum(), dots[n][r] = {};
  }
  OF_ROWS(r) {
    const Floats scale = all(x.scale[place + r]);
    OF_VECTORS(n) total[n][r] = fused(floats(found[n][r]), scales[n].scale * scale, total[n][r]);
    if constexpr (f.least) {
      const Floats sum = all(x.sum_rounded[place + r]);
      OF_VECTORS(n) total[n][r] = fused(scales[n].second, sum, total[n][r]);
    } else if constexpr (offset != 0) {
      const Floats sum = all(x.sum[place + r]);
      OF_VECTORS(n) total[n][r] = fused(scales[n].scale * float(-offset), sum, total[n][r]);
    }
  }
}

// The same where small numbers multiply a scale that 256 inputs share: up to there, all numbers are whole.
template <Stored kind, int R>
void add_span_of_256(const uint8_t* at, int vector, int64_t input, const Rounded& x, Floats (*total)[R]) {
  using Sums = Dots<most(kind)>;
  constexpr Form f = form(kind);
  constexpr int at_once = together_of<kind, R>;
  constexpr int words = f.each / 4, run = std::min(words, Sums::words), offset = f.offset - Sums::offset;
  const int8_t* with = x.numbers + input * R;
  const int16_t* sums = f.each == 16 ? x.sum_16 + input / 16 * R : x.sum_32 + input / 32 * R;
  Scales<kind> scales[at_once];
  Numbers<kind> numbers[at_once];
  Ints found[at_once][R] = {}, least[at_once][R] = {}, before[at_once] = {};
  OF_VECTORS(n) scales[n] = {at, vector + n}, numbers[n] = {at, vector + n, 0};
#pragma GCC unroll 1
  for (int place = 0; place < f.span / group; place++, with += group * R) {
    OF_VECTORS(n) numbers[n].move_to(place);
#pragma GCC unroll 2
    for (int half = 0; half < group / f.each; half++) {
      const int small = place * (group / f.each) + half;
      Ints times[at_once];
      Sums dots[at_once][R];
      OF_VECTORS(n) times[n] = scales[n].times(small);
#pragma GCC unroll 8
      for (int v = 0; v < words; v++) {
        Ints four[at_once];
        OF_VECTORS(n) four[n] = numbers[n].at(half * words + v);
        OF_ROWS(r) {
          const Ints input_four = word(with + ((half * words + v) * R + r) * 4);
          OF_VECTORS(n) dots[n][r].add(four[n], input_four);
        }
        if ((v + 1) % run == 0)
          OF_VECTORS(n) OF_ROWS(r) found[n][r] += dots[n][r].times(times[n]), dots[n][r] = {};
      }
      if constexpr (f.least || offset != 0) {
        Ints own[at_once];
        OF_VECTORS(n) own[n] = f.least ? scales[n].least(small) : times[n];
        if (small % 2)
          OF_ROWS(r) {
            const Ints pair = word(sums + (small / 2 * R + r) * 2);
            OF_VECTORS(n) least[n][r] += of_pairs(before[n] & 0xffff | own[n] << 16, pair);
          }
        OF_VECTORS(n) before[n] = own[n];
      }
    }
  }
  const float* scale = x.scale + input / f.span * R;
  OF_VECTORS(n) OF_ROWS(r) {
    Floats sum;
    if constexpr (f.least) sum = fused(floats(least[n][r]), -scales[n].second, floats(found[n][r]) * scales[n].scale);
    else sum = floats(found[n][r] - least[n][r] * offset) * scales[n].scale;
    total[n][r] = fused(sum, all(scale[r]), total[n][r]);
  }
}

// A tile of R rows, or one less, and the outputs of a block.
template <Stored kind, int R>
void rounded_block(int64_t count, const Weight& w, const Rounded& x, int64_t number, const Result& to) {
  constexpr Form f = form(kind);
  constexpr int at_once = together_of<kind, R>;
  // Without VNNI full tiles of short spans wait for arithmetic: prefetching would only take time.
  constexpr bool waits_for_memory = Dots<most(kind)>::words > 1 << 15 || R < tile_rows || f.span != group;
  const uint8_t* at = w.blocks + number * block_size(w);
  Floats total[vectors][R] = {};
  for (int64_t input = 0; input < w.in; input += f.span, at += span_size(kind))
#pragma GCC unroll 1
    for (int vector = 0; vector < vectors; vector += at_once) {
      constexpr int64_t size = span_size(kind) / vectors * at_once;
      if (waits_for_memory) fetch(at + vector / at_once * size, size, f.each == 16 ? 2 * span_size(kind) : 4 << 10);
      if constexpr (f.span == group) add_span_of_32<kind, R>(at, vector, input, x, total + vector);
      else add_span_of_256<kind, R>(at, vector, input, x, total + vector);
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

}  // namespace

void rounded_product(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end,
                     const Result& to) {
  by_whole_kind(w.stored, [&](auto kind) { rounded_blocks<kind>(count, w, x, from, end, to); });
}
