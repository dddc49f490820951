// Kernels of the integer products. Types whose quants are packed in the same way share a kernel. Rarer types, and Q6_K,
// are first unpacked to bytes in the L1 cache.
#include "integer_products.h"

namespace {

constexpr int slice = 256;  // inputs of a panel that are multiplied by all rows before the next ones
constexpr int64_t most_tiles = 64;  // of rows that are multiplied by a panel before the next ones

// Vectors of outputs that are multiplied together, so that each loaded activation serves all of them.
constexpr int tile_vectors = registers == 32 && vectors == 2 ? 2 : 1;
constexpr int passes = vectors / tile_vectors;  // over the quants of a panel

// The type whose packing the kernel reads; q8_0 stands for bytes.
constexpr WeightType packing_of(WeightType type) {
  switch (type) {
    case q4_0: case q4_1: return q4_1;
    case q5_0: case q5_1: return q5_1;
    case q4_k: case three_bits: return type;
    default: return q8_0;
  }
}

constexpr bool unpacked_first(WeightType type) { return packing_of(type) == q8_0 && type != q8_0; }

// Cache lines of 32 inputs of a panel, scales included.
constexpr int lines_of_group(WeightType type) {
  const int bytes = block_bytes(type) / (layout_of(type).block / group);
  return (bytes + 63) / 64;
}

// The properties of a type that its kernel depends on.
template <int block_, int sub_block_, WeightType packing_, bool unpacked_, class Dot_>
struct KernelTraits {
  static constexpr int block = block_, sub_block = sub_block_ ? sub_block_ : block_, sub_blocks = slice / sub_block;
  static constexpr WeightType packing = packing_;
  // How often the prefetcher advances in a pass over a group: with every so many words, and for the lines left over.
  static constexpr int words = sub_block / 4;
  static constexpr int left_over = unpacked_ ? 0 : (std::max(0, lines_of_group(packing) - 8) + passes - 1) / passes;
  static constexpr int advances = group / sub_block * ((words + passes - 1) / passes) + left_over;
  using Dot = Dot_;
};
template <WeightType type>
using TraitsOf =
    KernelTraits<layout_of(type).block, layout_of(type).sub_block, packing_of(type), unpacked_first(type),
                 ByteDotUpTo<max_quant(type)>>;

// A slice of a panel, ready to be multiplied.
template <class Traits>
struct Slice {
  int blocks;
  const uint8_t *scales, *quants;
  int64_t scales_stride, quants_stride, half_stride;  // bytes between blocks; between quants of 16 outputs and the next
  bool mins;     // else an offset is subtracted from the quants
  float offset;
  // Of super-blocks: sub-scales; and sub-mins, or sub-scales times the offset, for the sums of activations, in pairs.
  typename Traits::Dot::Scale sub_scales[Traits::sub_blocks][vectors];
  Ints sub_mins[Traits::sub_blocks / 2][vectors];
  alignas(64) uint8_t bytes[slice * panel];

  Quants<Traits::packing> quants_of(int vector) const {
    constexpr int in_sixteen = 16 / lanes;
    return {quants + vector / in_sixteen * half_stride + vector % in_sixteen * lanes * 4};
  }
};

// Prefetches the following weights evenly, since only few requests can be in flight.
struct Prefetcher {
  const uint8_t* at;
  int64_t step;  // bytes, at most a cache line

  void advance() { prefetch_after(at, 1), at += step; }
};

template <WeightType type>
void unpack_to_bytes(const uint8_t* from, int blocks, Prefetcher& prefetcher, Slice<TraitsOf<type>>& to) {
  constexpr int block = layout_of(type).block;
  to.quants = to.bytes, to.quants_stride = block * panel, to.half_stride = block * 16;
  for (int b = 0; b < blocks; b++, from += block_bytes(type))
    for (int vector = 0; vector < vectors; vector++) {
      const Quants<type> quants(from, vector);
      uint8_t* out = (uint8_t*)to.quants_of(vector).words + b * to.quants_stride;
#pragma GCC unroll 8
      for (int g = 0; g < block / group; g++) {
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++, out += 64) {
          if (v % vectors == 0) prefetcher.advance();
          const Ints word = quants.at(g, v);
          std::memcpy(out, &word, sizeof word);
        }
      }
    }
}

template <WeightType type>
void prepare(const uint8_t* from, int blocks, Prefetcher& prefetcher, Slice<TraitsOf<type>>& to) {
  using Dot = typename TraitsOf<type>::Dot;
  constexpr Layout l = layout_of(type);
  constexpr int offset = l.offset - Dot::offset;
  to.blocks = blocks, to.scales = from, to.scales_stride = block_bytes(type), to.mins = l.mins, to.offset = offset;
  to.quants = from + quants_at(type), to.quants_stride = block_bytes(type), to.half_stride = l.words * 64;
  if constexpr (unpacked_first(type)) unpack_to_bytes<type>(from, blocks, prefetcher, to);
  if constexpr (l.sub_block != 0)
    for (int vector = 0; vector < vectors; vector++) {
      const Scales<type> scales(from, vector);
      for (int i = 0; i < l.block / l.sub_block; i += 2) {
        const Ints first = scales.sub_scale(i), second = scales.sub_scale(i + 1);
        to.sub_scales[i][vector] = Dot::to_scale(first), to.sub_scales[i + 1][vector] = Dot::to_scale(second);
        if constexpr (l.mins) to.sub_mins[i / 2][vector] = pack_pairs(scales.sub_min(i), scales.sub_min(i + 1));
        else to.sub_mins[i / 2][vector] = pack_pairs(first * offset, second * offset);
      }
    }
}

// Loops over the rows and vectors of a tile. They are unrolled, or the accumulators would not stay in registers.
#define FOR_ROWS(r) _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)
#define FOR_VECTORS(n) _Pragma("GCC unroll 2") for (int n = 0; n < tile_vectors; n++)

// Dot products of R rows with a sub-block. quants(n, v) is word v of vector n. Calls add(n, r, dot) for each vector and
// row, several times if sums of 16 bits would overflow.
template <class Traits, int R, class QuantsAt, class Add>
inline void multiply(const int8_t* activations, Prefetcher& prefetcher, QuantsAt quants, Add add) {
  using Dot = typename Traits::Dot;
  constexpr int words = Traits::words, run = std::min(words, Dot::max_words);
  Dot dots[tile_vectors][R];
#pragma GCC unroll 8
  for (int v = 0; v < words; v++) {
    if (v % passes == 0) prefetcher.advance();
    Ints weights[tile_vectors];
    FOR_VECTORS(n) weights[n] = quants(n, v);
    FOR_ROWS(r) {
      const Ints activation = broadcast_word(activations + r * group + v * 4);
      FOR_VECTORS(n) dots[n][r].add(weights[n], activation);
    }
    if ((v + 1) % run == 0) FOR_ROWS(r) FOR_VECTORS(n) add(n, r, dots[n][r]), dots[n][r] = {};
  }
}

// Adds the products of a tile of R rows and a slice that consists of blocks of 32 to the accumulators [vectors][R].
template <class Traits, int R>
void add_blocks(const Slice<Traits>& w, const QuantisedTile& x, int64_t input, Prefetcher& prefetcher,
                Floats* accumulators) {
  using Dot = typename Traits::Dot;
#pragma GCC unroll 1
  for (int vector = 0; vector < vectors; vector += tile_vectors, accumulators += tile_vectors * R) {
    const int8_t* activations = x.quants + input * R;
    const float* x_scale = x.scales + input / group * R;
    const float* x_sum = (w.mins ? x.float16_sums : x.sums) + input / group * R;
    const uint8_t* scales = w.scales + 2 * lanes * vector;
    Quants<Traits::packing> quants[tile_vectors];
    FOR_VECTORS(n) quants[n] = w.quants_of(vector + n);
    Floats total[tile_vectors][R];
    FOR_ROWS(r) FOR_VECTORS(n) total[n][r] = accumulators[n * R + r];
#pragma GCC unroll 1
    for (int b = 0; b < w.blocks; b++, activations += group * R, x_scale += R, x_sum += R, scales += w.scales_stride) {
      for (int line = 0; line < Traits::left_over; line++) prefetcher.advance();
      Ints dots[tile_vectors][R] = {};
      multiply<Traits, R>(activations, prefetcher, [&](int n, int v) { return quants[n].at(0, v); },
                          [&](int n, int r, const Dot& dot) { dots[n][r] += dot.sum(); });
      Floats scale[tile_vectors], min[tile_vectors];
      FOR_VECTORS(n) {
        quants[n].words += w.quants_stride;
        scale[n] = load_float16(scales + 2 * lanes * n);
        min[n] = w.mins ? load_float16(scales + 2 * panel + 2 * lanes * n) : scale[n] * -w.offset;
      }
      FOR_ROWS(r) {
        const Floats row_scale = broadcast(x_scale[r]), row_sum = broadcast(x_sum[r]);
        FOR_VECTORS(n) total[n][r] = multiply_add(to_floats(dots[n][r]), scale[n] * row_scale, total[n][r]);
        FOR_VECTORS(n) total[n][r] = multiply_add(min[n], row_sum, total[n][r]);
      }
    }
    FOR_ROWS(r) FOR_VECTORS(n) accumulators[n * R + r] = total[n][r];
  }
}

// The same for a super-block of 256. Dot products are multiplied by sub-scales and added up before the float scale is
// applied. Where floats hold these sums of integers, they are exact up to 2^24; beyond that they are rounded, in the same
// way for any number of rows.
template <class Traits, int R>
void add_super_block(const Slice<Traits>& w, const QuantisedTile& x, int64_t input, Prefetcher& prefetcher,
                     Floats* accumulators) {
  using Dot = typename Traits::Dot;
  constexpr uint64_t period = Traits::packing == q4_k ? 2 : 1;  // groups after which the packing repeats
  constexpr int in_group = group / Traits::sub_block;
#pragma GCC unroll 1
  for (int vector = 0; vector < vectors; vector += tile_vectors, accumulators += tile_vectors * R) {
    const int8_t* activations = x.quants + input * R;
    Quants<Traits::packing> quants[tile_vectors];
    FOR_VECTORS(n) quants[n] = w.quants_of(vector + n);
    typename Dot::Total dots[tile_vectors][R] = {};
#pragma GCC unroll 1
    for (uint64_t p = 0; p < slice / group / period; p++)
#pragma GCC unroll 2
      for (uint64_t in_period = 0; in_period < period; in_period++, activations += group * R) {
        const uint64_t g = p * period + in_period;
        for (int line = 0; line < Traits::left_over; line++) prefetcher.advance();
#pragma GCC unroll 2
        for (int sub = 0; sub < in_group; sub++) {
          typename Dot::Scale sub_scale[tile_vectors];
          FOR_VECTORS(n) sub_scale[n] = w.sub_scales[g * in_group + sub][vector + n];
          multiply<Traits, R>(
              activations + sub * Traits::sub_block, prefetcher,
              [&](int n, int v) { return quants[n].at(g, sub * Traits::words + v); },
              [&](int n, int r, const Dot& dot) { dot.add_scaled_to(dots[n][r], sub_scale[n]); });
        }
      }
    const int16_t* sums = Traits::sub_block == 16 ? x.sums_of_16 + input / 16 * R : x.sums_of_32 + input / 32 * R;
    Ints corrections[tile_vectors][R] = {};
    for (int pair = 0; pair < Traits::sub_blocks / 2; pair++, sums += 2 * R)
      FOR_VECTORS(n) {
        const Ints mins = w.sub_mins[pair][vector + n];
        FOR_ROWS(r) corrections[n][r] = add_dot_pairs(corrections[n][r], mins, sums + 2 * r);
      }
    const float* x_scale = x.scales + input / slice * R;
    const uint8_t* scales = w.scales + 2 * lanes * vector;
    FOR_VECTORS(n) {
      const Floats scale = load_float16(scales + 2 * lanes * n), min = load_float16(scales + 2 * panel + 2 * lanes * n);
      FOR_ROWS(r) {
        Floats sum = Dot::difference(dots[n][r], w.mins ? Ints{} : corrections[n][r]) * scale;
        if (w.mins) sum = multiply_add(to_floats(corrections[n][r]), -min, sum);
        accumulators[n * R + r] = multiply_add(sum, broadcast(x_scale[r]), accumulators[n * R + r]);
      }
    }
  }
}

template <class Traits>
using Kernel = void (*)(const Slice<Traits>& w, const QuantisedTile& x, int64_t input, Prefetcher& prefetcher,
                        Floats* accumulators);

// The kernel for a tile of R rows.
template <class Traits, int R>
constexpr Kernel<Traits> kernel() {
  if constexpr (Traits::block == group) return add_blocks<Traits, R>;
  else return add_super_block<Traits, R>;
}

template <WeightType type>
void multiply_panels(int64_t count, const Weight& w, const QuantisedRows& x, int64_t from, int64_t end,
                     const Output& to) {
  using Traits = TraitsOf<type>;
  constexpr Kernel<Traits> kernels[] = {nullptr, kernel<Traits, 1>(), kernel<Traits, 2>(), kernel<Traits, 3>(),
      kernel<Traits, 4>(), nullptr, kernel<Traits, 6>(), nullptr, kernel<Traits, 8>()};
  struct TileWork {
    RowTile rows;
    QuantisedTile x;
    Floats accumulators[vectors * tile_rows];
  };
  TileWork work[most_tiles];  // on the stack: a thread must not fail to allocate it
  const int64_t tiles = RowTile::tiles(count), size = block_bytes(type);
  Slice<Traits> prepared;
  for (int64_t first = 0; first < tiles; first += most_tiles) {
    TileWork* const last = work + std::min(most_tiles, tiles - first);
    for (TileWork* tile = work; tile < last; tile++)
      tile->rows = RowTile::at(count, first + (tile - work)), tile->x = x.tile(w, first + (tile - work));
    // How often the prefetcher advances in a block.
    const int64_t steps =
        ((last - work) * passes * Traits::advances + (unpacked_first(type) ? 8 : 0)) * (Traits::block / group);
    for (int64_t index = from; index < end; index++) {
      const uint8_t* at = w.panels + index * panel_bytes(w);
      for (TileWork* tile = work; tile < last; tile++)
        std::fill_n(tile->accumulators, vectors * tile->rows.width, Floats{});
      for (int64_t input = 0; input < w.in; input += slice, at += prepared.blocks * size) {
        Prefetcher prefetcher{at, (size + steps - 1) / steps};
        prepare<type>(at, std::min<int64_t>(slice, w.in - input) / Traits::block, prefetcher, prepared);
        for (TileWork* tile = work; tile < last; tile++)
          kernels[tile->rows.width](prepared, tile->x, input, prefetcher, tile->accumulators);
      }
      for (const TileWork* tile = work; tile < last; tile++)
        for (int r = 0; r < tile->rows.rows; r++)
          for (int vector = 0; vector < vectors; vector++)
            store_outputs(w, to, tile->rows.first + r, index * panel + vector * lanes,
                          tile->accumulators[vector * tile->rows.width + r]);
    }
  }
}

}  // namespace

void integer_product(int64_t count, const Weight& w, const QuantisedRows& x, int64_t from, int64_t end,
                     const Output& to) {
  if (count) dispatch_quantised(w.type, [&](auto type) { multiply_panels<type>(count, w, x, from, end, to); });
}
