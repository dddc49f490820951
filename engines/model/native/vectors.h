// Portable SIMD vectors of 32-bit elements, as wide as the processor's registers, up to 16 lanes.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX512BW__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
#if defined(__AVX512BW__) || defined(__aarch64__)
constexpr int registers = 32;
#else
constexpr int registers = 16;
#endif

typedef float Floats __attribute__((vector_size(4 * lanes)));
typedef int32_t Ints __attribute__((vector_size(4 * lanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));
typedef int8_t Bytes __attribute__((vector_size(lanes)));

template <class Vector>
inline Vector load(const void* from) {
  Vector result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

inline Floats load(const float* from) { return load<Floats>(from); }

inline void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }

inline Floats broadcast(float value) {
#ifdef __AVX512BW__
  return (Floats)_mm512_set1_ps(value);
#elif defined(__AVX2__)
  return (Floats)_mm256_set1_ps(value);
#else
  return Floats{} + value;
#endif
}

// Keeps a vector in a register. Otherwise the compiler turns each use into a memory operand, and the repeated loads are
// slower than the multiplications.
inline Floats in_register(Floats values) {
#if defined(__AVX2__)
  asm("" : "+x"(values));
#endif
  return values;
}

inline Floats to_floats(Ints values) { return __builtin_convertvector(values, Floats); }

// Converts float16 to float32. Without F16C or AVX-512 infinities are not converted.
inline Floats load_float16(const uint8_t* from) {
#ifdef __AVX512BW__
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__AVX2__) && defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
  const Ints bits = __builtin_convertvector(load<Halves>(from), Ints);
  const Floats magnitude = (Floats)((bits & 0x7fff) << 13) * 0x1p112f;  // the exponent biases differ by 112
  return (Floats)((Ints)magnitude | (bits & 0x8000) << 16);
#endif
}

// Converts bfloat16, the upper half of a float32.
inline Floats load_bfloat16(const uint8_t* from) {
#ifdef __AVX512BW__
  return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from)), 16);
#elif defined(__AVX2__)
  return (Floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)from)), 16);
#else
  return (Floats)(__builtin_convertvector(load<Halves>(from), Ints) << 16);
#endif
}

// Sign-extends int8 to int32.
inline Ints load_int8(const uint8_t* from) {
#ifdef __AVX512BW__
  return (Ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)from));
#elif defined(__AVX2__)
  return (Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from));
#else
  return __builtin_convertvector(load<Bytes>(from), Ints);
#endif
}

// a * b + c, as a fused multiply-add where the processor has one.
inline Floats multiply_add(Floats a, Floats b, Floats c) {
#ifdef __AVX512BW__
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

// Byte k of each 32-bit word, unsigned.
template <int k>
inline Floats byte_to_floats(Ints words) {
#ifdef __AVX512BW__
  const __m512i shuffle = _mm512_set4_epi32(0x80808000 + 0x0c + k, 0x80808000 + 0x08 + k, 0x80808000 + 0x04 + k,
                                            0x80808000 + k);
  return to_floats((Ints)_mm512_shuffle_epi8((__m512i)words, shuffle));
#else
  return to_floats(words >> 8 * k & 255);
#endif
}

// Looks each byte, a 4-bit index, up in llama.cpp's codebook of IQ4_NL and IQ4_XS, with 128 added to make it unsigned.
inline Ints iq4_codebook(Ints index) {
  alignas(16) static const uint8_t table[] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
#ifdef __AVX512BW__
  return (Ints)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i*)table)), (__m512i)index);
#elif defined(__AVX2__)
  return (Ints)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)table)), (__m256i)index);
#else
  uint8_t bytes[4 * lanes];
  std::memcpy(bytes, &index, sizeof bytes);
  for (auto& byte : bytes) byte = table[byte & 15];
  return load<Ints>(bytes);
#endif
}

// In each lane, the dot product of two pairs of int16.
inline Ints dot_pairs(Ints a, Ints b) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

// Packs the lower 16 bits of each lane of two vectors into pairs of int16.
inline Ints pack_pairs(Ints low, Ints high) { return low & 0xffff | high << 16; }

inline Ints broadcast_word(const void* from) {
  int32_t word;
  std::memcpy(&word, from, 4);
  return Ints{} + word;
}

// total + dot_pairs(a, the word at `from` in all lanes).
inline Ints add_dot_pairs(Ints total, Ints a, const void* from) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)total, (__m512i)a, (__m512i)broadcast_word(from));
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpwssd_avx_epi32((__m256i)total, (__m256i)a, (__m256i)broadcast_word(from));
#else
  return total + dot_pairs(a, broadcast_word(from));
#endif
}

#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512BW__)) || !defined(__AVX2__)
// In each lane, the dot product of unsigned bytes (quants) with signed bytes (activations), four per word.
struct ByteDot {
  static constexpr int max_words = 1 << 20;  // how many words can be added without overflow
  static constexpr int offset = 0;           // subtracted from the unsigned bytes before they are multiplied
  // Scaled sums are accumulated as floats, since multiplying integers is slower. Floats are exact up to 2^24.
  using Total = Floats;
  using Scale = Floats;
  Ints dot{};

  void add(Ints quants, Ints activations) {
#if defined(__AVX512VNNI__)
    dot = (Ints)_mm512_dpbusd_epi32((__m512i)dot, (__m512i)quants, (__m512i)activations);
#elif defined(__AVXVNNI__)
    dot = (Ints)_mm256_dpbusd_avx_epi32((__m256i)dot, (__m256i)quants, (__m256i)activations);
#else
    for (int k = 0; k < 4; k++) dot += (quants >> 8 * k & 255) * (activations << (24 - 8 * k) >> 24);
#endif
  }
  Ints sum() const { return dot; }
  static Scale to_scale(Ints integers) { return to_floats(integers); }
  void add_scaled_to(Total& total, Scale scale) const { total = multiply_add(to_floats(dot), scale, total); }
  static Floats difference(Total total, Ints correction) { return total - to_floats(correction); }
};
template <int max_quant>
using ByteDotUpTo = ByteDot;  // for quants of at most `max_quant`
#else
// The same without dot product instructions: each half of a lane holds a 16-bit sum, which limits the number of words.
template <int max_quant>
struct ByteDot {
  static constexpr bool wide = max_quant > 127;
  static constexpr int max_words = wide ? 1 : 32767 / (2 * 127 * max_quant);
#ifdef __AVX512BW__
  static constexpr bool full_lanes = wide;  // sums have 32 bits
  static constexpr int offset = 0;
#else
  static constexpr bool full_lanes = false;
  static constexpr int offset = wide ? 128 : 0;
#endif
  using Total = Ints;
  using Scale = Ints;
  Ints dot{};

  void add(Ints quants, Ints activations) {
#ifdef __AVX512BW__
    if constexpr (wide)
      dot += dot_pairs(quants & 0x00ff00ff, (Ints)_mm512_srai_epi16(_mm512_slli_epi16((__m512i)activations, 8), 8)) +
             dot_pairs(quants >> 8 & 0x00ff00ff, (Ints)_mm512_srai_epi16((__m512i)activations, 8));
    else dot = (Ints)_mm512_add_epi16((__m512i)dot, _mm512_maddubs_epi16((__m512i)quants, (__m512i)activations));
#else
    if constexpr (wide) {
      const __m256i centred = (__m256i)(quants ^ Ints{} + int32_t(0x80808080));
      dot = (Ints)_mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8((__m256i)activations, centred));
    } else {
      dot = (Ints)_mm256_add_epi16((__m256i)dot, _mm256_maddubs_epi16((__m256i)quants, (__m256i)activations));
    }
#endif
    asm("" : "+x"(dot));  // stops the compiler from reordering the sums, which would spill all products to the stack
  }
  Ints sum() const { return scaled(to_scale(Ints{} + 1)); }
  static Scale to_scale(Ints integers) { return full_lanes ? integers : pack_pairs(integers, integers); }
  void add_scaled_to(Total& total, Scale scale) const { total += scaled(scale); }
  static Floats difference(Total total, Ints correction) { return to_floats(total - correction); }

 private:
  Ints scaled(Scale scale) const { return full_lanes ? dot * scale : dot_pairs(dot, scale); }
};
template <int max_quant>
using ByteDotUpTo = ByteDot<max_quant <= 15 ? 15 : max_quant <= 31 ? 31 : max_quant <= 63 ? 63 : 255>;
#endif

inline float sum(Floats v) {
  for (int step = lanes / 2; step; step /= 2)
    for (int i = 0; i < step; i++) v[i] += v[i + step];
  return v[0];
}

inline int sum(Ints v) {
#ifdef __AVX512BW__
  return _mm512_reduce_add_epi32((__m512i)v);
#else
  int total = 0;
  for (int i = 0; i < lanes; i++) total += v[i];
  return total;
#endif
}

#ifdef __AVX512BW__
inline float max_lane(Floats v) { return _mm512_reduce_max_ps((__m512)v); }
inline int32_t max_lane(Ints v) { return _mm512_reduce_max_epi32((__m512i)v); }
#else
template <class Vector>
inline auto max_lane(Vector v) {
  auto max = v[0];
  for (int i = 1; i < lanes; i++) max = v[i] > max ? v[i] : max;
  return max;
}
#endif

// In each lane, `yes` where the mask is set, else `no`.
inline Floats blend(Ints mask, Floats yes, Floats no) { return (Floats)(((Ints)yes & mask) | ((Ints)no & ~mask)); }

// e^x, accurate to the last bits of a float. x is clamped to -87 .. 88; a nan stays one.
inline Floats exponential(Floats x) {
  x = blend(x < -87.0f, broadcast(-87.0f), x);
  x = blend(x > 88.0f, broadcast(88.0f), x);
  const Floats shifted = x * 1.44269504f + 12582912.0f, exponent = shifted - 12582912.0f;  // rounds to an integer
  const Floats rest = exponent * -1.42860677e-6f + (exponent * -0.693145752f + x);
  Floats series = broadcast(1.0f / 5040);
  for (float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) series = series * rest + term;
  return (Floats)((Ints)series + ((Ints)shifted << 23));
}

// 0, 1, ...
inline Ints lane_indices() {
  Ints indices;
  for (int i = 0; i < lanes; i++) indices[i] = i;
  return indices;
}
