#include "ops/kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weft {
namespace {

int IndexOf(const absl::flat_hash_map<std::string, KernelSpec::Slot>& slots,
            absl::string_view name) {
  auto it = slots.find(name);
  return it == slots.end() || it->second.count == 0 ? -1 : it->second.first;
}

}  // namespace

int KernelSpec::Input(absl::string_view slot) const { return IndexOf(inputs, slot); }
int KernelSpec::Output(absl::string_view slot) const { return IndexOf(outputs, slot); }

RandomState RandomState::Seeded(uint64_t seed, int rank) {
  // seed_seq takes the low 32 bits of each number.
  std::seed_seq initializers{seed};
  std::seed_seq dropout{seed, static_cast<uint64_t>(rank) + 1};
  return RandomState{std::mt19937_64(initializers), std::mt19937_64(dropout)};
}

void KernelTable::Add(std::string op_type, KernelFactory factory) {
  if (!factories_.emplace(op_type, std::move(factory)).second) {
    std::fprintf(stderr, "KernelTable::Add: %s is there already\n", op_type.c_str());
    std::abort();
  }
}

const KernelFactory* KernelTable::Find(absl::string_view op_type) const {
  auto it = factories_.find(op_type);
  return it == factories_.end() ? nullptr : &it->second;
}

std::vector<std::string> KernelTable::op_types() const {
  std::vector<std::string> types;
  types.reserve(factories_.size());
  for (const auto& entry : factories_) types.push_back(entry.first);
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace weft
