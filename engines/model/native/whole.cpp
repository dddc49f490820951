// Products of rounded rows with what is stored as whole numbers.
#include "whole.h"

namespace {

// For each of R rows; their sums stay in registers only where the loop is gone.
#define OF_ROWS(r) _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)

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
    OF_ROWS(r) dots[r].add(four, word(with + (v * R + r) * 4));
    if ((v + 1) % run == 0)
      OF_ROWS(r) found[r] += dots[r].sum(), dots[r] = {};
  }
  OF_ROWS(r)
    total[r] = fused(floats(found[r]), scales.scale * x.scale[place + r], total[r]);
  if constexpr (f.least)
    OF_ROWS(r) total[r] = fused(scales.second, all(x.sum_rounded[place + r]), total[r]);
  else if constexpr (offset != 0) {
    const Floats least = scales.scale * float(-offset);
    OF_ROWS(r) total[r] = fused(least, all(x.sum[place + r]), total[r]);
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
        OF_ROWS(r) dots[r].add(four, word(with + ((half * words + v) * R + r) * 4));
        if ((v + 1) % run == 0)
          OF_ROWS(r) found[r] += dots[r].times(times), dots[r] = {};
      }
      if constexpr (f.least || offset != 0) {
        const Ints own = f.least ? scales.least(small) : times;
        if (small % 2)
          OF_ROWS(r)
            least[r] += of_pairs(before & 0xffff | own << 16, word(sums + (small / 2 * R + r) * 2));
        before = own;
      }
    }
  }
  const float* scale = x.scale + input / f.span * R;
  OF_ROWS(r) {
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
  // Without VNNI full tiles of short spans wait for arithmetic: prefetching would only take time.
  constexpr bool waits_for_memory = Dots<most(kind)>::words > 1 << 15 || R < tile_rows || f.span != group;
  const uint8_t* at = w.blocks + number * block_size(w);
  Floats total[vectors][R] = {};
  for (int64_t input = 0; input < w.in; input += f.span, at += span_size(kind))
#pragma GCC unroll 1
    for (int vector = 0; vector < vectors; vector++) {
      if (waits_for_memory) fetch(at + vector * (span_size(kind) / vectors), span_size(kind) / vectors);
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

}  // namespace

void rounded_product(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end,
                     const Result& to) {
  by_whole_kind(w.stored, [&](auto kind) { rounded_blocks<kind>(count, w, x, from, end, to); });
}
