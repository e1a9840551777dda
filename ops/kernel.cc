#include "ops/kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "ops/formulas/philox.h"

namespace weft {
namespace {

int IndexOf(const absl::flat_hash_map<std::string, KernelSpec::Slot>& slots,
            absl::string_view name) {
  auto it = slots.find(name);
  return it == slots.end() || it->second.count == 0 ? -1 : it->second.first;
}

using Factories = absl::flat_hash_map<std::string, KernelFactory>;

void AddTo(Factories* factories, std::string op_type, KernelFactory factory) {
  const auto [it, is_new] = factories->insert({std::move(op_type), std::move(factory)});
  if (is_new) return;
  std::fprintf(stderr, "KernelTable: %s already exists\n", it->first.c_str());
  std::abort();
}

const KernelFactory* FindIn(const Factories& factories, absl::string_view op_type) {
  const auto it = factories.find(op_type);
  return it == factories.end() ? nullptr : &it->second;
}

template <typename Map>
std::vector<std::string> SortedTypes(const Map& map) {
  std::vector<std::string> types;
  types.reserve(map.size());
  for (const auto& entry : map) types.push_back(entry.first);
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace

int KernelSpec::Input(absl::string_view slot) const { return IndexOf(inputs, slot); }
int KernelSpec::Output(absl::string_view slot) const { return IndexOf(outputs, slot); }

DropoutState DropoutState::OfStep(uint64_t seed, int rank, int64_t step) {
  const formulas::PhiloxBlock numbers =
      formulas::Philox(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(step));
  return DropoutState{uint64_t{numbers.words[1]} << 32 | numbers.words[0], 0};
}

RandomState RandomState::Seeded(uint64_t seed, int rank) {
  // seed_seq takes the low 32 bits of each number.
  std::seed_seq initializers{seed};
  std::seed_seq noise{seed, static_cast<uint64_t>(rank) + 1};
  return RandomState{std::mt19937_64(initializers), std::mt19937_64(noise),
                     DropoutState::OfStep(seed, rank, 0)};
}

void KernelTable::Add(std::string op_type, KernelFactory factory) {
  AddTo(&dense_, std::move(op_type), std::move(factory));
}

void KernelTable::Add(const std::string& op_type, KernelFactory factory,
                      KernelFactory grad_factory) {
  Add(op_type, std::move(factory));
  Add(op_type + "_grad", std::move(grad_factory));
}

void KernelTable::AddForRows(std::string op_type, KernelFactory factory) {
  AddTo(&for_rows_, std::move(op_type), std::move(factory));
}

const KernelFactory* KernelTable::Find(absl::string_view op_type) const {
  return FindIn(dense_, op_type);
}

const KernelFactory* KernelTable::FindForRows(absl::string_view op_type) const {
  return FindIn(for_rows_, op_type);
}

std::vector<std::string> KernelTable::op_types() const { return SortedTypes(dense_); }
std::vector<std::string> KernelTable::op_types_for_rows() const { return SortedTypes(for_rows_); }

}  // namespace weft
