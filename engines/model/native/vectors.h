// Vectors of as many numbers as the processor has in one, up to 16.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int registers = 32;
#else
constexpr int registers = 16;
#endif

typedef float Floats __attribute__((vector_size(4 * lanes)));
typedef int32_t Ints __attribute__((vector_size(4 * lanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));
typedef int8_t Bytes __attribute__((vector_size(lanes)));

template <class Vector>
inline Vector load(const void* at) {
  Vector found;
  std::memcpy(&found, at, sizeof found);
  return found;
}

inline Floats load(const float* at) { return load<Floats>(at); }

inline void store(float* at, Floats numbers) { std::memcpy(at, &numbers, sizeof numbers); }

inline Floats all(float number) {
#ifdef __AVX512F__
  return (Floats)_mm512_set1_ps(number);
#elif defined(__AVX2__)
  return (Floats)_mm256_set1_ps(number);
#else
  return Floats{} + number;
#endif
}

// A vector that stays in a register: else the compiler reads it from memory again for each use, which takes longer than
// to multiply it.
inline Floats held(Floats numbers) {
#if defined(__AVX2__)
  asm("" : "+x"(numbers));
#endif
  return numbers;
}

inline Floats floats(Ints numbers) { return __builtin_convertvector(numbers, Floats); }

// Numbers of half precision, not infinite.
inline Floats halves(const uint8_t* at) {
#ifdef __AVX512F__
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)at));
#elif defined(__AVX2__) && defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)at));
#else
  const Ints bits = __builtin_convertvector(load<Halves>(at), Ints);
  const Floats size = (Floats)((bits & 0x7fff) << 13) * 0x1p112f;  // the exponents differ by 112
  return (Floats)((Ints)size | (bits & 0x8000) << 16);
#endif
}

// Numbers of bfloat16: the upper halves of floats.
inline Floats upper_halves(const uint8_t* at) {
#ifdef __AVX512F__
  return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)at)), 16);
#elif defined(__AVX2__)
  return (Floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)at)), 16);
#else
  return (Floats)(__builtin_convertvector(load<Halves>(at), Ints) << 16);
#endif
}

// Bytes with a sign.
inline Ints ints(const uint8_t* at) {
#ifdef __AVX512F__
  return (Ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)at));
#elif defined(__AVX2__)
  return (Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)at));
#else
  return __builtin_convertvector(load<Bytes>(at), Ints);
#endif
}

// a * b + c, rounded once where the processor does that.
inline Floats fused(Floats a, Floats b, Floats c) {
#ifdef __AVX512F__
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

// Byte k of each word, without a sign.
template <int k>
inline Floats of_byte(Ints words) {
#ifdef __AVX512BW__
  const __m512i places = _mm512_set4_epi32(0x80808000 + 0x0c + k, 0x80808000 + 0x08 + k, 0x80808000 + 0x04 + k,
                                           0x80808000 + k);
  return floats((Ints)_mm512_shuffle_epi8((__m512i)words, places));
#else
  return floats(words >> 8 * k & 255);
#endif
}

// For each byte of 4 bits the number of llama.cpp's table for it, plus 128.
inline Ints listed(Ints fours) {
  alignas(16) static const uint8_t table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
#ifdef __AVX512BW__
  return (Ints)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i*)table)), (__m512i)fours);
#elif defined(__AVX2__)
  return (Ints)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)table)), (__m256i)fours);
#else
  uint8_t bytes[4 * lanes];
  std::memcpy(bytes, &fours, sizeof bytes);
  for (auto& byte : bytes) byte = table[byte & 15];
  return load<Ints>(bytes);
#endif
}

// In each lane the sum of the products of two pairs of 16-bit numbers with signs.
inline Ints of_pairs(Ints a, Ints b) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

// The lower halves of the lanes of two vectors beside each other.
inline Ints in_pairs(Ints low, Ints high) { return low & 0xffff | high << 16; }

inline Ints word(const void* at) {
  int32_t found;
  std::memcpy(&found, at, 4);
  return Ints{} + found;
}

// total + of_pairs(a, the word at a place in all lanes).
inline Ints plus_pairs(Ints total, Ints a, const void* at) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)total, (__m512i)a, (__m512i)word(at));
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpwssd_avx_epi32((__m256i)total, (__m256i)a, (__m256i)word(at));
#else
  return total + of_pairs(a, word(at));
#endif
}

#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__)) || !defined(__AVX2__) || \
    (defined(__AVX512F__) && !defined(__AVX512BW__))
// In each lane a sum of products of four bytes without a sign with four that have one.
struct Dots {
  static constexpr int words = 1 << 20;  // that can be added
  static constexpr int offset = 0;       // what is taken from the first bytes before they are multiplied
  // Sums times factors are added up as floats, which are exact up to 2^24: multiplying integers takes longer.
  using Total = Floats;
  using Factor = Floats;
  Ints found{};

  void add(Ints bytes, Ints with) {
#if defined(__AVX512VNNI__)
    found = (Ints)_mm512_dpbusd_epi32((__m512i)found, (__m512i)bytes, (__m512i)with);
#elif defined(__AVXVNNI__)
    found = (Ints)_mm256_dpbusd_avx_epi32((__m256i)found, (__m256i)bytes, (__m256i)with);
#else
    for (int k = 0; k < 4; k++) found += (bytes >> 8 * k & 255) * (with << (24 - 8 * k) >> 24);
#endif
  }
  Ints sum() const { return found; }
  static Factor factor(Ints numbers) { return floats(numbers); }
  void move(Factor factor, Total& to) const { to = fused(floats(found), factor, to); }
  static Floats without(Total all, Ints taken) { return all - floats(taken); }
};
template <int most>
using DotsOf = Dots;  // of bytes that are `most` at most
#else
// The same without such instructions: a sum of 16 bits in each half of a lane, which has room for so many words.
template <int most>
struct Dots {
  static constexpr bool wide = most > 127;
  static constexpr int words = wide ? 1 : 32767 / (2 * 127 * most);
#ifdef __AVX512BW__
  static constexpr bool whole = wide;    // sums are of 32 bits
  static constexpr int offset = 0;
#else
  static constexpr bool whole = false;
  static constexpr int offset = wide ? 128 : 0;
#endif
  using Total = Ints;
  using Factor = Ints;
  Ints found{};

  void add(Ints bytes, Ints with) {
#ifdef __AVX512BW__
    if constexpr (wide)  // of 32 bits
      found += of_pairs(bytes & 0x00ff00ff, (Ints)_mm512_srai_epi16(_mm512_slli_epi16((__m512i)with, 8), 8)) +
               of_pairs(bytes >> 8 & 0x00ff00ff, (Ints)_mm512_srai_epi16((__m512i)with, 8));
    else found = (Ints)_mm512_add_epi16((__m512i)found, _mm512_maddubs_epi16((__m512i)bytes, (__m512i)with));
#else
    if constexpr (wide) {
      const __m256i own = (__m256i)(bytes ^ Ints{} + int32_t(0x80808080));
      found = (Ints)_mm256_maddubs_epi16(_mm256_abs_epi8(own), _mm256_sign_epi8((__m256i)with, own));
    } else {
      found = (Ints)_mm256_add_epi16((__m256i)found, _mm256_maddubs_epi16((__m256i)bytes, (__m256i)with));
    }
#endif
    asm("" : "+x"(found));  // else the compiler reorders the sums and keeps all products on the stack
  }
  Ints sum() const { return times(factor(Ints{} + 1)); }
  static Factor factor(Ints numbers) { return whole ? numbers : in_pairs(numbers, numbers); }
  void move(Factor factor, Total& to) const { to += times(factor); }
  static Floats without(Total all, Ints taken) { return floats(all - taken); }

 private:
  Ints times(Factor factor) const { return whole ? found * factor : of_pairs(found, factor); }
};
template <int most>
using DotsOf = Dots<most <= 15 ? 15 : most <= 31 ? 31 : most <= 63 ? 63 : 255>;
#endif

inline float sum(Floats v) {
  for (int step = lanes / 2; step; step /= 2)
    for (int i = 0; i < step; i++) v[i] += v[i + step];
  return v[0];
}

inline int sum(Ints v) {
#ifdef __AVX512F__
  return _mm512_reduce_add_epi32((__m512i)v);
#else
  int found = 0;
  for (int i = 0; i < lanes; i++) found += v[i];
  return found;
#endif
}

inline float largest(Floats v) {
#ifdef __AVX512F__
  return _mm512_reduce_max_ps((__m512)v);
#endif
  float found = v[0];
  for (int i = 1; i < lanes; i++) found = v[i] > found ? v[i] : found;
  return found;
}

inline Floats chosen(Ints which, Floats yes, Floats no) { return (Floats)(((Ints)yes & which) | ((Ints)no & ~which)); }

// e^x to the last bits of a float, of x from -87 to 88; what lies outside is taken for the nearer end.
inline Floats exponential(Floats x) {
  x = chosen(x > -87.0f, x, all(-87.0f));
  x = chosen(x < 88.0f, x, all(88.0f));
  const Floats shifted = x * 1.44269504f + 12582912.0f, turns = shifted - 12582912.0f;  // rounds to integers
  const Floats rest = turns * -1.42860677e-6f + (turns * -0.693145752f + x);
  Floats found = all(1.0f / 5040);
  for (float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) found = found * rest + factor;
  return (Floats)((Ints)found + ((Ints)shifted << 23));
}

// Calls use(n...) with 0, 1, ... of each lane as constants.
template <class Use, int... n>
inline auto of_lanes(Use use, std::integer_sequence<int, n...>) {
  return use(std::integral_constant<int, n>()...);
}
template <class Use>
inline auto of_lanes(Use use) {
  return of_lanes(use, std::make_integer_sequence<int, lanes>());
}

// 0, 1, ...
inline Ints numbered() {
  return of_lanes([](auto... n) { return Ints{decltype(n)::value...}; });
}
