#include "proto/program_checks.h"

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/common.h"

namespace weft {
namespace {

absl::Status TooDeep(int block) {
  return absl::InvalidArgumentError(
      absl::StrCat("block ", block, ": blocks are nested deeper than ", Program::kMaxBlockDepth));
}

}  // namespace

absl::Status CheckParents(const Program& program) {
  const int n = program.num_blocks();
  if (n == 0) return absl::InvalidArgumentError("the program has no blocks");
  std::vector<int> parents;
  for (int i = 0; i < n; ++i) {
    const int parent = program.block(i).parent_idx();
    if (parent < -1 || parent >= n) {
      return absl::InvalidArgumentError(absl::StrCat(
          "block ", i, ": parent block ", parent, " is missing; the program has ", n, " blocks"));
    }
    parents.push_back(parent);
  }
  if (parents[0] != -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("block 0: the root block has parent ", parents[0], ", expected -1"));
  }
  // Following parents must end at the root. The walk stops at blocks of known depth: linear time.
  constexpr int kUnknown = -1, kOnTheWay = -2;
  std::vector<int> depth(n, kUnknown);
  std::vector<int> way;
  for (int i = 0; i < n; ++i) {
    int b = i;
    for (; b != -1 && depth[b] == kUnknown; b = parents[b]) {
      depth[b] = kOnTheWay;
      way.push_back(b);
    }
    if (b != -1 && depth[b] == kOnTheWay) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", b, ": is its own ancestor: the parents form a cycle"));
    }
    for (int above = b == -1 ? -1 : depth[b]; !way.empty(); way.pop_back()) {
      depth[way.back()] = ++above;
      if (above > Program::kMaxBlockDepth) return TooDeep(way.back());
    }
  }
  return absl::OkStatus();
}

// Running an op runs its sub-blocks, so no block may contain itself.
absl::Status CheckSubBlocks(const Program& program, absl::Span<const OpId> ops_with_sub_blocks) {
  const int n = program.num_blocks();
  std::vector<std::vector<int>> contains(n);
  std::vector<int> times_contained(n, 0), depth(n, 0);
  for (OpId id : ops_with_sub_blocks) {
    const Op op = program.op(id);
    for (int sub : op.SubBlocks()) {
      if (sub < 1 || sub >= n) {
        return absl::InvalidArgumentError(
            absl::StrCat(op.DebugName(), ": sub-block ", sub,
                         sub == 0 ? " is the root block"
                                  : absl::StrCat(" is missing; the program has ", n, " blocks")));
      }
      contains[op.block()].push_back(sub);
      ++times_contained[sub];
    }
  }
  // Topological order: a block follows all blocks that contain it.
  std::vector<int> ready;
  for (int i = 0; i < n; ++i) {
    if (times_contained[i] == 0) ready.push_back(i);
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (int sub : contains[ready[i]]) {
      depth[sub] = std::max(depth[sub], depth[ready[i]] + 1);
      if (depth[sub] > Program::kMaxBlockDepth) return TooDeep(sub);
      if (--times_contained[sub] == 0) ready.push_back(sub);
    }
  }
  for (int i = 0; i < n; ++i) {
    if (times_contained[i] > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", i, ": sub-blocks contain each other in a cycle"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view name) {
  using google::protobuf::internal::IsStructurallyValidUTF8;
  if (IsStructurallyValidUTF8(name.data(), static_cast<int>(name.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the name '", absl::CEscape(name), "' is not valid UTF-8"));
}

}  // namespace weft
