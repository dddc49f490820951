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

inline Floats all(float number) { return Floats{} + number; }

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

inline Floats of_bytes(const uint8_t* at) {
#ifdef __AVX512F__
  return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)at)));
#elif defined(__AVX2__)
  return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)at)));
#else
  return floats(__builtin_convertvector(load<Bytes>(at), Ints));
#endif
}

// The whole number of 4 bits at place k of each word.
inline Floats of_four_bits(Ints words, int k) {
#ifdef __AVX512F__
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return (Floats)_mm512_permutexvar_ps((__m512i)(words >> 4 * k), table);  // which looks at the lowest 4 bits alone
#else
  return floats(words >> 4 * k & 15);
#endif
}

inline float sum(Floats v) {
  for (int step = lanes / 2; step; step /= 2)
    for (int i = 0; i < step; i++) v[i] += v[i + step];
  return v[0];
}

inline float largest(Floats v) {
  float found = v[0];
  for (int i = 1; i < lanes; i++) found = v[i] > found ? v[i] : found;
  return found;
}

inline Floats chosen(Ints which, Floats yes, Floats no) { return (Floats)(((Ints)yes & which) | ((Ints)no & ~which)); }

// e^x to the last bits of a float, of x from -87 to 88; what lies outside is taken for the nearer end.
inline Floats exponential(Floats x) {
  x = chosen(x > -87.0f, x, all(-87.0f));
  x = chosen(x < 88.0f, x, all(88.0f));
  const Floats shifted = x * 1.44269504f + 12582912.0f, turns = shifted - 12582912.0f;  // rounds to whole numbers
  const Floats rest = turns * -1.42860677e-6f + (turns * -0.693145752f + x);
  Floats found = all(1.0f / 5040);
  for (float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) found = found * rest + factor;
  return (Floats)((Ints)found + ((Ints)shifted << 23));
}

#ifdef __clang__
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, Ints{__VA_ARGS__})
#endif

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

// Where lane i of two vectors that are added up in parts of `size` comes from: the parts of `a`, then those of `b`.
constexpr int from_lane(int i, int size, bool second) {
  const int in_one = i % (lanes / 2);
  return i / (lanes / 2) * lanes + in_one / size * 2 * size + in_one % size + second * size;
}

template <int size>
inline Floats add_parts(Floats a, Floats b) {
  return of_lanes([&](auto... n) {
#ifdef __clang__
    return __builtin_shufflevector(a, b, from_lane(decltype(n)::value, size, false)...) +
           __builtin_shufflevector(a, b, from_lane(decltype(n)::value, size, true)...);
#else
    return __builtin_shuffle(a, b, Ints{from_lane(decltype(n)::value, size, false)...}) +
           __builtin_shuffle(a, b, Ints{from_lane(decltype(n)::value, size, true)...});
#endif
  });
}

// The bits of a lane's number, the other way round.
constexpr int reversed(int n) {
  int found = 0;
  for (int bit = 1; bit < lanes; bit *= 2) found = 2 * found + (n & bit ? 1 : 0);
  return found;
}

// The sum of each of as many vectors as there are lanes, all in one order. That of lane n is given at reversed(n).
template <int size = lanes / 2>
inline Floats sums(Floats (&v)[lanes]) {
  for (int i = 0; i < size; i++) v[i] = add_parts<size>(v[i], v[i + size]);
  if constexpr (size > 1) return sums<size / 2>(v);
  return v[0];
}
