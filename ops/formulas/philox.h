// Philox 4x32-10: random numbers by their position, in any order and on any device. Salmon, Moraes,
// Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#ifndef WEFT_OPS_FORMULAS_PHILOX_H_
#define WEFT_OPS_FORMULAS_PHILOX_H_

#include <cstdint>

#include "ops/host_device.h"

namespace weft::formulas {

// Four numbers, uniform in [0, 2^32).
struct PhiloxBlock {
  uint32_t words[4];
};

// Of block `block` of sequence `sequence` of a key. All three may be any number.
WEFT_HOST_DEVICE inline PhiloxBlock Philox(uint64_t key, uint64_t sequence, uint64_t block) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint32_t a = static_cast<uint32_t>(block), b = static_cast<uint32_t>(block >> 32);
  uint32_t c = static_cast<uint32_t>(sequence), d = static_cast<uint32_t>(sequence >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t from_a = uint64_t{0xD2511F53} * a, from_c = uint64_t{0xCD9E8D57} * c;
    a = static_cast<uint32_t>(from_c >> 32) ^ b ^ key0;
    b = static_cast<uint32_t>(from_c);
    c = static_cast<uint32_t>(from_a >> 32) ^ d ^ key1;
    d = static_cast<uint32_t>(from_a);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return {{a, b, c, d}};
}

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_PHILOX_H_
