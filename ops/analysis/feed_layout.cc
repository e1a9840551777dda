#include "ops/analysis/feed_layout.h"

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/feed_ops.h"

namespace weft {

absl::flat_hash_set<VarId> FindData(const Program& program) {
  absl::flat_hash_set<VarId> data;
  bool is_marked = false;
  const Block& root = program.block(0);
  for (VarId id : root.vars()) {
    if (!program.var(id).need_check_feed()) continue;
    data.insert(id);
    is_marked = true;
  }
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      if (!HandsOutData(op.type())) continue;
      is_marked = is_marked || IsFeed(op.type());
      for (Symbol name : op.output_args()) {
        const VarId var = program.block(block).Resolve(name);
        if (var.valid()) data.insert(var);
      }
    }
  }
  if (is_marked) return data;
  // A program that says nothing of what it is fed reads it.
  absl::flat_hash_set<Symbol> written;
  OpTraits traits(program);
  for (OpId id : root.ops()) {
    const Op op = program.op(id);
    if (traits.Has(op, Trait::kAlias)) continue;  // reads sizes only
    for (Symbol name : op.input_args()) {
      const VarId var = root.FindVar(name);
      if (!var.valid() || written.contains(name) || program.var(var).persistable()) continue;
      if (program.var(var).type() == pb::VarType::LOD_TENSOR) data.insert(var);
    }
    written.insert(op.output_args().begin(), op.output_args().end());
  }
  return data;
}

std::string ToString(const FeedLayout& layout) {
  return layout.axis.has_value() ? absl::StrCat("axis:", *layout.axis) : "whole";
}

absl::StatusOr<FeedLayouts> ParseFeedLayouts(absl::string_view text) {
  FeedLayouts layouts;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    // The last '=': names of variables may hold others.
    const size_t equals = entry.rfind('=');
    absl::string_view value = equals == absl::string_view::npos ? "" : entry.substr(equals + 1);
    FeedLayout layout = FeedLayout::Whole();
    int axis = 0;
    if (absl::ConsumePrefix(&value, "axis:") && absl::SimpleAtoi(value, &axis) && axis >= 0) {
      layout.axis = axis;
    } else if (value != "whole") {
      return absl::InvalidArgumentError(
          absl::StrCat("feed layout: expected VARIABLE=whole or VARIABLE=axis:N, found ", entry));
    }
    const std::string name(entry.substr(0, equals));
    if (!layouts.emplace(name, layout).second) {
      return absl::InvalidArgumentError(absl::StrCat("feed layout: ", name, " is named twice"));
    }
  }
  return layouts;
}

}  // namespace weft
