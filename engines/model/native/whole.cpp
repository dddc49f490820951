// Products of rounded rows with what is stored as integers.
#include "whole.h"

namespace {

// Vectors of outputs that are multiplied together with R rows: an input that was loaded serves all of them, where there
// are registers for as many sums. Spans of 256 are read from memory faster one vector at a time, which decides for few
// rows.
template <Stored kind, int R>
constexpr int together_of = registers == 32 && vectors == 2 && (form(kind).span == group || R > 2) ? 2 : 1;

// What will be read next, asked for little at a time, as few requests can be open. The tiles of a pass read a block one
// after another, and each asks for its share of what comes after the block: memory is never idle.
template <Stored kind, int at_once>
struct Next {
  static constexpr int parts = form(kind).span / group;
  const uint8_t* at;
  int64_t each;  // bytes

  Next(const uint8_t* block, int64_t size, int64_t tile, int64_t tiles)
      : at(block + (tiles - 1 + tile) * size / tiles), each(span_size(kind) * at_once / vectors / parts / tiles) {}

  // Another part of a span is being read.
  void ask() { fetch(at, each), at += each; }
};

// For each of R rows, and each of the vectors; their sums stay in registers only where the loop is gone.
#define OF_ROWS(r) _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)
#define OF_VECTORS(n) _Pragma("GCC unroll 2") for (int n = 0; n < at_once; n++)

// Products of R rows with vectors of outputs in a span whose inputs share a scale.
template <Stored kind, int R, class Asks>
void add_span_of_32(const uint8_t* at, int vector, int64_t input, const Rounded& x, Asks& next, Floats (*total)[R]) {
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
  // Without VNNI full tiles wait for arithmetic: prefetching would only take time.
  if (Sums::words > 1 << 15 || R < tile_rows) next.ask();
  OF_VECTORS(n) scales[n] = {at, vector + n}, numbers[n] = {at, vector + n};
#pragma GCC unroll 8
  for (int v = 0; v < 8; v++) {
    Ints four[at_once];
    OF_VECTORS(n) four[n] = numbers[n].at(0, v);
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

// The same where small numbers multiply a scale that 256 inputs share. What comes before that scale is made of integers,
// also where floats hold it: these are exact up to 2^24.
template <Stored kind, int R, class Asks>
void add_span_of_256(const uint8_t* at, int vector, int64_t input, const Rounded& x, Asks& next, Floats (*total)[R]) {
  using Sums = Dots<most(kind)>;
  constexpr Form f = form(kind);
  constexpr int at_once = together_of<kind, R>;
  constexpr int words = f.each / 4, run = std::min(words, Sums::words), offset = f.offset - Sums::offset;
  const int8_t* with = x.numbers + input * R;
  Scales<kind> scales[at_once];
  Numbers<kind> numbers[at_once];
  typename Sums::Total found[at_once][R] = {};
  OF_VECTORS(n) scales[n] = {at, vector + n}, numbers[n] = {at, vector + n};
#pragma GCC unroll 8
  for (int place = 0; place < f.span / group; place++, with += group * R) {
    next.ask();
    OF_VECTORS(n) asm("" : "+r"(numbers[n].words));  // else the compiler keeps lines that it needs again on the stack
#pragma GCC unroll 2
    for (int half = 0; half < group / f.each; half++) {
      typename Sums::Factor times[at_once];
      Sums dots[at_once][R];
      OF_VECTORS(n) times[n] = Sums::factor(scales[n].times(place * (group / f.each) + half));
#pragma GCC unroll 8
      for (int v = 0; v < words; v++) {
        Ints four[at_once];
        OF_VECTORS(n) four[n] = numbers[n].at(place, half * words + v);
        OF_ROWS(r) {
          const Ints input_four = word(with + ((half * words + v) * R + r) * 4);
          OF_VECTORS(n) dots[n][r].add(four[n], input_four);
        }
        if ((v + 1) % run == 0) OF_VECTORS(n) OF_ROWS(r) dots[n][r].move(times[n], found[n][r]);
      }
    }
  }
  const float* scale = x.scale + input / f.span * R;
  Ints least[at_once][R] = {};
  if constexpr (f.least || offset != 0) {
    const int16_t* sums = f.each == 16 ? x.sum_16 + input / 16 * R : x.sum_32 + input / 32 * R;
    const auto own = [&](int n, int small) { return f.least ? scales[n].least(small) : scales[n].times(small); };
    for (int small = 0; small < f.span / f.each; small += 2, sums += 2 * R)
      OF_VECTORS(n) {
        const Ints two = own(n, small) & 0xffff | own(n, small + 1) << 16;
        OF_ROWS(r) least[n][r] = plus_pairs(least[n][r], two, sums + 2 * r);
      }
  }
  OF_VECTORS(n) OF_ROWS(r) {
    Floats sum = Sums::without(found[n][r], f.least ? Ints{} : least[n][r] * offset) * scales[n].scale;
    if constexpr (f.least) sum = fused(floats(least[n][r]), -scales[n].second, sum);
    total[n][r] = fused(sum, all(scale[r]), total[n][r]);
  }
}

// A tile of R rows, or one less, and the outputs of a block.
template <Stored kind, int R>
void rounded_block(int64_t count, const Weight& w, const Rounded& x, int64_t number, int64_t tile, int64_t tiles,
                   const Result& to) {
  constexpr Form f = form(kind);
  constexpr int at_once = together_of<kind, R>;
  const uint8_t* at = w.blocks + number * block_size(w);
  Next<kind, at_once> next(at, block_size(w), tile, tiles);
  Floats total[vectors][R] = {};
  for (int64_t input = 0; input < w.in; input += f.span, at += span_size(kind))
#pragma GCC unroll 1
    for (int vector = 0; vector < vectors; vector += at_once)
      if constexpr (f.span == group) add_span_of_32<kind, R>(at, vector, input, x, next, total + vector);
      else add_span_of_256<kind, R>(at, vector, input, x, next, total + vector);
  for (int r = 0; r < R && r < count; r++)
    for (int vector = 0; vector < vectors; vector++)
      put(w, to, r, number * block + vector * lanes, total[vector][r]);
}

template <Stored kind>
void rounded_blocks(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end, const Result& to) {
  for (; from < end; from++)
    for (int64_t i = 0, tiles = Tile::number_of(count); i < tiles; i++) {
      const Tile own = Tile::at(count, i);
      const auto of = own.width == 1 ? rounded_block<kind, 1> : own.width == 2 ? rounded_block<kind, 2>
                      : own.width == 3 ? rounded_block<kind, 3> : own.width == 4 ? rounded_block<kind, 4>
                      : own.width == 6 ? rounded_block<kind, 6> : rounded_block<kind, 8>;
      of(own.rows, w, x.tile(w, i), from, i, tiles, {to.y + own.first * to.stride, to.stride, to.added});
    }
}

}  // namespace

void rounded_product(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end,
                     const Result& to) {
  by_whole_kind(w.stored, [&](auto kind) { rounded_blocks<kind>(count, w, x, from, end, to); });
}
