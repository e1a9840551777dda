// SHA-256 (FIPS 180-4).
#include <array>
#include <cmath>

#include "checker/format.h"

namespace checker {
namespace {

// The first 32 bits of the fractional parts of roots of the first `count` primes.
template <size_t count>
std::array<uint32_t, count> BitsOfRoots(double (*root)(double)) {
  std::array<uint32_t, count> bits;
  size_t found = 0;
  for (int n = 2; found < count; ++n) {
    bool is_prime = true;
    for (int i = 2; i * i <= n; ++i) is_prime = is_prime && n % i != 0;
    if (is_prime) bits[found++] = static_cast<uint32_t>(std::fmod(root(n), 1) * 4294967296.0);
  }
  return bits;
}

uint32_t Rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

void AddBlock(const char* block, const std::array<uint32_t, 64>& constants,
              std::array<uint32_t, 8>* hash) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    const auto byte = [&](size_t n) { return uint32_t{static_cast<uint8_t>(block[4 * i + n])}; };
    w[i] = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
  }
#pragma GCC unroll 8
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (Rotate(a, 7) ^ Rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (Rotate(b, 17) ^ Rotate(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = *hash;
#pragma GCC unroll 8
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t = h + (Rotate(e, 6) ^ Rotate(e, 11) ^ Rotate(e, 25)) + (g ^ (e & (f ^ g))) +
                       constants[i] + w[i];
    const uint32_t u = (Rotate(a, 2) ^ Rotate(a, 13) ^ Rotate(a, 22)) + ((a & b) | (c & (a | b)));
    h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) (*hash)[i] += add[i];
}

}  // namespace

std::string Sha256(std::string_view bytes) {
  const auto constants = BitsOfRoots<64>(std::cbrt);
  auto hash = BitsOfRoots<8>(std::sqrt);
  // After the bytes: a 1, zeros, and the length in bits, which ends a block.
  const size_t whole = bytes.size() / 64 * 64;
  std::string tail = Text(bytes.substr(whole), "\x80");
  tail.resize((tail.size() + 8 + 63) / 64 * 64);
  for (size_t i = 0; i < 8; ++i) {
    tail[tail.size() - 1 - i] = static_cast<char>(uint64_t{bytes.size()} * 8 >> (8 * i));
  }
  for (size_t i = 0; i < whole; i += 64) AddBlock(bytes.data() + i, constants, &hash);
  for (size_t i = 0; i < tail.size(); i += 64) AddBlock(tail.data() + i, constants, &hash);
  std::string hex;
  for (const uint32_t word : hash) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

}  // namespace checker
