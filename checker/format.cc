#include "checker/format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace checker {

uint64_t Fields::ReadVarint() {
  uint64_t value = 0;
  for (size_t i = 0; i < rest_.size(); ++i) {
    const auto byte = static_cast<unsigned char>(rest_[i]);
    Expect(i < 9 || byte <= 1, "a number is longer than 64 bits");
    value |= uint64_t{byte & 127u} << (7 * i);
    if (byte >= 128) continue;
    rest_.remove_prefix(i + 1);
    return value;
  }
  throw Failure{"a message is cut off"};
}

bool Fields::Next(uint64_t wanted) {
  do {
    if (rest_.empty()) return false;
    const std::string_view begin = rest_;
    const uint64_t tag = ReadVarint();
    number = tag >> 3;
    wire_type_ = tag & 7;
    Expect(number != 0, "a message has a field 0");
    Expect(wire_type_ <= 2 || wire_type_ == 5, "a field has an unknown wire type");
    value_ = wire_type_ == 1 ? 8 : wire_type_ == 5 ? 4 : ReadVarint();
    if (wire_type_ != 0) {
      Expect(value_ <= rest_.size(), "a message is cut off");
      bytes_ = rest_.substr(0, value_);
      rest_.remove_prefix(value_);
    }
    if (wire_type_ == 1 || wire_type_ == 5) {
      value_ = 0;
      for (size_t i = bytes_.size(); i-- > 0;) {
        value_ = value_ << 8 | static_cast<unsigned char>(bytes_[i]);
      }
    }
    whole = begin.substr(0, begin.size() - rest_.size());
  } while (wanted != 0 && number != wanted);
  return true;
}

const Fields& Fields::Of(uint64_t wire_type) const {
  Expect(wire_type_ == wire_type, "a field has another wire type than in the format");
  return *this;
}

float Fields::Float() const {
  const auto bits = static_cast<uint32_t>(Of(5).value_);
  float result = 0;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

std::string_view TextOf(std::string_view message, uint64_t number) {
  Fields fields(message);
  if (!fields.Next(number)) return {};
  const std::string_view value = fields.Bytes();
  Expect(!fields.Next(number), "a field is there twice");
  return value;
}

uint64_t NumberOf(std::string_view message, uint64_t number) {
  Fields fields(message);
  if (!fields.Next(number)) return 0;
  const uint64_t value = fields.Varint();
  Expect(!fields.Next(number), "a field is there twice");
  return value;
}

Decl::Decl(std::string_view decl) : bytes(decl), name(TextOf(decl, 1)) {
  const std::string_view described = TextOf(decl, 2);
  persistable = NumberOf(decl, 3) != 0;
  is_data = NumberOf(decl, 4) != 0;
  type = static_cast<int>(NumberOf(described, 1));
  // The tensor of rows is there itself, others in a message of their own.
  tensor = type == 8 ? TextOf(described, 2) : TextOf(TextOf(described, type == 13 ? 4 : 3), 1);
  dtype = static_cast<int>(NumberOf(tensor, 1));
  if (tensor.data() != nullptr) elements = 1;
  for (const int64_t dim : Dims()) {
    const bool is_known =
        dim > 0 && elements > 0 && elements <= std::numeric_limits<int64_t>::max() / dim;
    elements = is_known ? elements * dim : -1;
  }
}

std::vector<int64_t> Decl::Dims() const {
  std::vector<int64_t> dims;
  for (Fields fields(tensor); fields.Next(2);) {
    dims.push_back(static_cast<int64_t>(fields.Varint()));  // no version of Paddle packs them
  }
  Expect(dims.size() <= 64, name, ": too many dimensions");
  return dims;
}

Attr::Attr(std::string_view attr) : bytes(attr) {
  int seen[3] = {};
  for (Fields fields(attr); fields.Next();) {
    if (fields.number > 2) continue;
    Expect(seen[fields.number]++ == 0, "a field is there twice");
    fields.number == 1 ? void(name = fields.Bytes()) : void(type = fields.Varint());
  }
}

bool Attr::IsZero() const {
  const std::vector<bool> are = Values(&Fields::IsZero);
  return type <= kLongs && type != 4 && type != 7 &&
         std::find(are.begin(), are.end(), false) == are.end();
}

Op::Op(std::string_view op, uint64_t memory_left) : bytes(op) {
  size_t num_types = 0;
  attrs.reserve(32);
  slots.reserve(16);
  args.reserve(16);
  for (Fields fields(op); fields.Next();) {
    if (fields.number == 4) {
      attrs.emplace_back(fields.Bytes());
      const Attr* const first = Find(attrs.back().name);
      Expect(first->bytes == attrs.back().bytes, "attribute ", first->name, " is there twice");
    } else if (fields.number == 3) {
      type = fields.Bytes();
      Expect(++num_types == 1, "its type is there twice");
    } else if (fields.number < 3) {
      const Slot added{TextOf(fields.Bytes(), 1), fields.number == 2};
      for (const Slot& slot : slots) {
        Expect(slot.is_output != added.is_output || slot.name != added.name,
               added.is_output ? "output slot " : "input slot ", added.name, " is there twice");
      }
      slots.push_back(added);
      for (Fields vars(fields.Bytes()); vars.Next(2);) {
        const std::string_view var = vars.Bytes();
        if (var.empty() || var == "@EMPTY@") continue;
        args.push_back({added, var});
        Expect(Memory() <= memory_left, "its arguments take more memory than such files may");
      }
    }
    Expect(slots.size() + attrs.size() <= 256, "it has too many slots or attributes");
  }
}

const Attr* Op::Find(std::string_view attr) const {
  const auto is_it = [&](const Attr& candidate) { return candidate.name == attr; };
  const auto found = std::find_if(attrs.begin(), attrs.end(), is_it);
  return found == attrs.end() ? nullptr : &*found;
}

std::vector<uint64_t> Op::Numbers(std::string_view attr) const {
  const Attr* const found = Find(attr);
  return found == nullptr ? std::vector<uint64_t>() : found->Numbers();
}

int64_t Op::Number(std::string_view attr, int64_t absent) const {
  if (Find(attr) == nullptr) return absent;
  const std::vector<uint64_t> numbers = Numbers(attr);
  return numbers.empty() ? 0 : static_cast<int64_t>(numbers[0]);
}

bool AreSameOps(std::string_view op, std::string_view other) {
  const auto sorted = [](std::string_view op) {
    std::vector<std::string_view> kept;
    for (Fields fields(op); fields.Next();) {
      const std::string_view name = fields.number == 4 ? TextOf(fields.Bytes(), 1) : "";
      if (name != "op_callstack" && name != "op_namescope") kept.push_back(fields.whole);
      Expect(kept.size() <= 512, "it has too many fields");
    }
    std::sort(kept.begin(), kept.end());
    return kept;
  };
  return op == other || sorted(op) == sorted(other);
}

namespace {

// FIPS 180-4. The first 32 bits of the fractional parts of roots of the first `count` primes.
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
  std::array<uint32_t, 64> w = {};
  for (size_t i = 0; i < 64; ++i) {
    w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(block[i]);
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (Rotate(a, 7) ^ Rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (Rotate(b, 17) ^ Rotate(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = *hash;
  // Eight rounds at a time, so that no word moves: the names do.
  for (size_t i = 0; i < 64; i += 8) {
    const auto round = [&](size_t j, uint32_t a, uint32_t b, uint32_t c, uint32_t* d, uint32_t e,
                           uint32_t f, uint32_t g, uint32_t* h) {
      const uint32_t t = *h + (Rotate(e, 6) ^ Rotate(e, 11) ^ Rotate(e, 25)) + (g ^ (e & (f ^ g))) +
                         constants[i + j] + w[i + j];
      *d += t;
      *h = t + (Rotate(a, 2) ^ Rotate(a, 13) ^ Rotate(a, 22)) + ((a & b) | (c & (a | b)));
    };
    round(0, a, b, c, &d, e, f, g, &h), round(1, h, a, b, &c, d, e, f, &g);
    round(2, g, h, a, &b, c, d, e, &f), round(3, f, g, h, &a, b, c, d, &e);
    round(4, e, f, g, &h, a, b, c, &d), round(5, d, e, f, &g, h, a, b, &c);
    round(6, c, d, e, &f, g, h, a, &b), round(7, b, c, d, &e, f, g, h, &a);
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
