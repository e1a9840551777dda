#include "average_variable.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/op_traits.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_builder.h"

namespace embed {
namespace {

constexpr int kRing = 0;

bool Contains(absl::Span<const weft::Symbol> args, weft::Symbol variable) {
  return std::find(args.begin(), args.end(), variable) != args.end();
}

// An op from the variable to itself, on the ring.
weft::pb::OpDesc InPlace(const std::string& type, const std::string& variable,
                         const weft::PassContext& context) {
  return weft::BuildOp(weft::InPlaceOp(type, {variable}, {{"ring_id", kRing}}, weft::kRoleForward),
                       context.target.dialect);
}

}  // namespace

void AverageVariable::Options::Bind(weft::OptionBinder& bind) {
  bind.String("name", &name, "name of the variable");
}

absl::StatusOr<bool> AverageVariable::Run(const weft::PassContext& context,
                                          weft::ProgramPair& programs) const {
  const weft::Program& main = *programs.main;
  const weft::Symbol variable = main.FindSymbol(options_.name);
  weft::OpId writer,
      next;  // the last op that writes it, and the first one after that which uses it
  for (weft::OpId id : main.block(0).ops()) {
    const weft::Op op = main.op(id);
    if (Contains(op.output_args(), variable)) {
      writer = id;
      next = weft::OpId();
    } else if (writer.valid() && !next.valid() && Contains(op.args(), variable)) {
      next = id;
    }
  }
  if (!writer.valid()) {
    return absl::NotFoundError(absl::StrCat("no op of the root block writes ", options_.name));
  }
  // It is averaged already: what writes it last is the wait for the mean.
  if (weft::OpTraits(main).Has(main.op(writer), weft::Trait::kStreamSync)) return false;
  weft::Rewriter rewriter(programs.main);
  rewriter.InsertAfter(writer, InPlace("c_wait_compute", options_.name, context));
  rewriter.InsertAfter(writer, InPlace("c_allreduce_avg", options_.name, context));
  // Without a reader, the next step is the first that could write the variable again.
  const weft::pb::OpDesc wait = InPlace("c_wait_comm", options_.name, context);
  if (next.valid()) {
    rewriter.InsertBefore(next, wait);
  } else {
    rewriter.Append(0, wait);
  }
  context.sink.Explain(kName, options_.name, "averaged", "as asked");
  return weft::CommitEdits(&rewriter);
}

}  // namespace embed
