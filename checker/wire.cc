#include "checker/wire.h"

#include <array>
#include <cstring>

namespace checker {

uint64_t Fields::ReadVarint() {
  if (!rest_.empty() && static_cast<unsigned char>(rest_[0]) < 128) {  // most are
    const auto byte = static_cast<uint64_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    Expect(!rest_.empty(), "a message is cut off");
    const auto byte = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    if (shift == 63 && byte > 1) break;
    value |= uint64_t{byte & 127u} << shift;
    if (byte < 128) return value;
  }
  throw Failure{"a number is longer than 64 bits"};
}

uint64_t Fields::ReadFixed(size_t size) {
  Expect(size <= rest_.size(), "a message is cut off");
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(rest_[i]);
  rest_.remove_prefix(size);
  return value;
}

bool Fields::Next() {
  if (rest_.empty()) return false;
  const std::string_view before = rest_;
  const uint64_t tag = ReadVarint();
  number = tag >> 3;
  wire_type = static_cast<int>(tag & 7);
  bytes = {};
  value = 0;
  Expect(number != 0, "a message has a field 0");
  if (wire_type == 0) {
    value = ReadVarint();
  } else if (wire_type == 1 || wire_type == 5) {
    value = ReadFixed(wire_type == 1 ? 8 : 4);
  } else if (wire_type == 2) {
    const uint64_t size = ReadVarint();
    Expect(size <= rest_.size(), "a message is cut off");
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
  } else {
    throw Failure{"a field has an unknown wire type"};
  }
  whole = before.substr(0, before.size() - rest_.size());
  return true;
}

std::string_view Fields::Bytes() const {
  Expect(wire_type == 2, "field ", std::to_string(number), " is no text or message");
  return bytes;
}

uint64_t Fields::Varint() const {
  Expect(wire_type == 0, "field ", std::to_string(number), " is no number");
  return value;
}

float Fields::Float() const {
  Expect(wire_type == 5, "field ", std::to_string(number), " is no float");
  const auto bits = static_cast<uint32_t>(value);
  float result = 0;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

namespace {

// FIPS 180-4. The constants are the first bits of the fractional parts of the cube roots of the
// first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t Rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

void AddBlock(const unsigned char* block, std::array<uint32_t, 8>* hash) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
           uint32_t{block[4 * i + 2]} << 8 | block[4 * i + 3];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (Rotate(a, 7) ^ Rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (Rotate(b, 17) ^ Rotate(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = *hash;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (Rotate(e, 6) ^ Rotate(e, 11) ^ Rotate(e, 25)) + ((e & f) ^ (~e & g)) +
                        kRound[i] + w[i];
    const uint32_t t2 =
        (Rotate(a, 2) ^ Rotate(a, 13) ^ Rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) (*hash)[i] += add[i];
}

}  // namespace

std::string Sha256(std::string_view bytes) {
  std::array<uint32_t, 8> hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const size_t whole = bytes.size() / 64 * 64, rest = bytes.size() - whole;
  for (size_t i = 0; i < whole; i += 64) AddBlock(data + i, &hash);
  // The rest, a 1, zeros, and the length in bits.
  std::array<unsigned char, 128> tail = {};
  for (size_t i = 0; i < rest; ++i) tail[i] = data[whole + i];
  tail[rest] = 0x80;
  const size_t end = rest < 56 ? 64 : 128;
  for (size_t i = 0; i < 8; ++i) {
    tail[end - 1 - i] = static_cast<unsigned char>(uint64_t{bytes.size()} * 8 >> (8 * i));
  }
  for (size_t i = 0; i < end; i += 64) AddBlock(tail.data() + i, &hash);
  std::string hex;
  for (const uint32_t word : hash) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

}  // namespace checker
