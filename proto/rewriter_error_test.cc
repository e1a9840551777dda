// What Rewriter::Commit refuses; the program stays as it was each time.
#include <functional>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

pb::OpDesc NewOp(const std::string& type, const std::vector<std::string>& inputs = {}) {
  pb::OpDesc op;
  op.set_type(type);
  auto* slot = op.add_inputs();
  slot->set_parameter("X");
  for (const std::string& name : inputs) slot->add_arguments(name);
  return op;
}

pb::OpDesc WithSubBlock(int block) {
  return ProgramBuilder().Op("while", {}, {}).BlockAttr("sub_block", block).last_op();
}

pb::VarDesc NewVar(const std::string& name) { return ProgramBuilder().Var(name).last_var(); }

// Ops a, b over a variable v, and c that runs block 1; block 1 with a variable and op d; op e was
// erased.
Program Example(OpId* erased) {
  ProgramBuilder builder;
  builder.Op("a", {{"X", {"v"}}}, {}).Op("b", {{"X", {"v"}}}, {});
  builder.Op("c", {}, {}).BlockAttr("sub_block", 1).Op("e", {}, {});
  builder.NewBlock().Var("inner").Op("d", {{"X", {"inner"}}}, {});
  Program program = builder.Build();
  *erased = program.block(0).ops()[3];
  Rewriter rewriter(&program);
  rewriter.Erase(*erased);
  WEFT_EXPECT_OK(rewriter.Commit());
  return program;
}

// Everything that can be asked about a program.
struct State {
  explicit State(const Program& program)
      : bytes(program.Serialize()),
        num_ops(program.num_ops()),
        num_vars(program.num_vars()),
        revision(program.revision()) {
    for (int b = 0; b < program.num_blocks(); ++b) {
      const Block block = program.block(b);
      ops.emplace_back(block.ops().begin(), block.ops().end());
      vars.emplace_back(block.vars().begin(), block.vars().end());
      texts.push_back(OpTexts(program, b));
      for (OpId id : block.ops()) names.push_back(program.op(id).DebugName());
      for (const char* name : {"v", "inner", "new", "other"}) {
        found.push_back(block.FindVar(name));
        found.push_back(block.Resolve(name));
      }
    }
  }
  bool operator==(const State& o) const {
    return bytes == o.bytes && num_ops == o.num_ops && num_vars == o.num_vars &&
           revision == o.revision && ops == o.ops && vars == o.vars && texts == o.texts &&
           names == o.names && found == o.found;
  }

  std::string bytes;
  size_t num_ops, num_vars;
  int revision;
  std::vector<std::vector<OpId>> ops;
  std::vector<std::vector<VarId>> vars;
  std::vector<std::vector<std::string>> texts;
  std::vector<std::string> names;
  std::vector<VarId> found;
};

struct Ids {
  OpId a, b, c, d, erased;
  VarId v, inner;
};

struct Mistake {
  std::string name;
  std::function<void(const Ids&, Rewriter&)> make;
  std::string message;
};

class CommitRefuses : public ::testing::TestWithParam<Mistake> {};

TEST_P(CommitRefuses, AndChangesNothing) {
  Ids ids;
  Program program = Example(&ids.erased);
  ids.a = program.block(0).ops()[0];
  ids.b = program.block(0).ops()[1];
  ids.c = program.block(0).ops()[2];
  ids.d = program.block(1).ops()[0];
  ids.v = program.block(0).vars()[0];
  ids.inner = program.block(1).vars()[0];
  const State before(program);

  Rewriter rewriter(&program);
  // Sound edits of every kind, which must not happen either.
  const auto sound_edits = [&] {
    rewriter.AddVar(0, NewVar("new"));
    rewriter.AddVar(1, NewVar("new"));
    pb::VarDesc v = program.var(ids.v).ToProto();
    v.set_persistable(true);
    rewriter.ReplaceVar(ids.v, v);
    rewriter.InsertBefore(ids.a, NewOp("x", {"new"}));
    rewriter.Replace(ids.a, NewOp("y", {"v"}));
    rewriter.MoveBefore(ids.c, ids.a);
    rewriter.Append(1, NewOp("z", {"inner"}));
  };
  sound_edits();
  GetParam().make(ids, rewriter);
  EXPECT_THAT(rewriter.Commit(), IsInvalidArgument(GetParam().message));
  EXPECT_TRUE(State(program) == before);
  EXPECT_TRUE(rewriter.empty());

  // A refused commit leaves nothing: the same edits without the mistake succeed.
  sound_edits();
  WEFT_EXPECT_OK(rewriter.Commit());
  WEFT_EXPECT_OK(Program::Parse(program.Serialize()));
  EXPECT_EQ(program.num_ops(), before.num_ops + 2);
  EXPECT_EQ(program.num_vars(), before.num_vars + 2);
}

pb::OpDesc Untyped() {
  pb::OpDesc op;
  op.set_is_target(true);
  return op;
}

pb::OpDesc RoleOfWrongType() {
  pb::OpDesc op = NewOp("r");
  auto* attr = op.add_attrs();
  attr->set_name("op_role");
  attr->set_type(pb::LONG);
  return op;
}

INSTANTIATE_TEST_SUITE_P(
    RewriterTest, CommitRefuses,
    ::testing::Values(
        Mistake{"OpWithoutType",
                [](const Ids& ids, Rewriter& r) { r.InsertAfter(ids.b, Untyped()); },
                "new op has no type"},
        Mistake{"ReplacementWithoutType",
                [](const Ids& ids, Rewriter& r) { r.Replace(ids.b, Untyped()); },
                "new op has no type"},
        Mistake{"RoleOfWrongType", [](const Ids&, Rewriter& r) { r.Append(0, RoleOfWrongType()); },
                "new op (r): attribute op_role: expected type INT, found LONG"},
        Mistake{"OpTypeThatIsNotUtf8", [](const Ids&, Rewriter& r) { r.Append(0, NewOp("\xff")); },
                "is not valid UTF-8"},
        Mistake{"VarNameThatIsNotUtf8",
                [](const Ids&, Rewriter& r) { r.AddVar(0, NewVar("\xff")); }, "is not valid UTF-8"},
        Mistake{"VarWithoutName", [](const Ids&, Rewriter& r) { r.AddVar(0, pb::VarDesc()); },
                "new variable has no name"},
        Mistake{"VarWithoutType",
                [](const Ids&, Rewriter& r) {
                  pb::VarDesc var;
                  var.set_name("other");
                  r.AddVar(0, var);
                },
                "new variable (other) has no type"},
        Mistake{"UndeclaredVariable",
                [](const Ids&, Rewriter& r) {
                  r.Append(0, NewOp("n", {"v", "nobody"}));
                },
                "new op n in block 0: variable nobody is not declared"},
        Mistake{"UndeclaredVariableOfAReplacement",
                [](const Ids& ids, Rewriter& r) { r.Replace(ids.b, NewOp("n", {"nobody"})); },
                "new op n in block 0: variable nobody is not declared"},
        Mistake{"VariableOfASubBlock",
                [](const Ids&, Rewriter& r) { r.Append(0, NewOp("n", {"inner"})); },
                "new op n in block 0: variable inner is not declared"},
        Mistake{"SubBlockThatDoesNotExist",
                [](const Ids&, Rewriter& r) { r.Append(0, WithSubBlock(2)); },
                "new op while in block 0: sub-block 2 does not exist"},
        Mistake{"RootAsSubBlock", [](const Ids&, Rewriter& r) { r.Append(1, WithSubBlock(0)); },
                "new op while in block 1: sub-block 0 does not exist"},
        Mistake{"SubBlockThatWouldContainItself",
                [](const Ids&, Rewriter& r) { r.Append(1, WithSubBlock(1)); },
                "block 1: sub-blocks contain each other in a cycle"},
        Mistake{"VariableDeclaredAlready",
                [](const Ids&, Rewriter& r) { r.AddVar(0, NewVar("v")); },
                "block 0: variable 'v' is declared twice"},
        Mistake{"VariableAddedTwice",
                [](const Ids&, Rewriter& r) {
                  r.AddVar(1, NewVar("other"));
                  r.AddVar(1, NewVar("other"));
                },
                "block 1: variable 'other' is declared twice"},
        Mistake{"BlockThatDoesNotExist", [](const Ids&, Rewriter& r) { r.Append(2, NewOp("n")); },
                "block 2 for an op does not exist; the program has 2 blocks"},
        Mistake{"NegativeBlock", [](const Ids&, Rewriter& r) { r.Prepend(-1, NewOp("n")); },
                "block -1 for an op does not exist"},
        Mistake{"BlockOfAVariableThatDoesNotExist",
                [](const Ids&, Rewriter& r) { r.AddVar(2, NewVar("other")); },
                "block 2 for a variable does not exist"},
        Mistake{"AnchorThatIsErased",
                [](const Ids& ids, Rewriter& r) { r.InsertAfter(ids.erased, NewOp("n")); },
                "the op to insert beside does not exist"},
        Mistake{"AnchorThatNeverWas",
                [](const Ids&, Rewriter& r) { r.InsertBefore(OpId(999), NewOp("n")); },
                "the op to insert beside does not exist"},
        Mistake{"AnchorThatIsInvalid",
                [](const Ids&, Rewriter& r) { r.InsertBefore(OpId(), NewOp("n")); },
                "the op to insert beside does not exist"},
        Mistake{"EraseWhatIsErased", [](const Ids& ids, Rewriter& r) { r.Erase(ids.erased); },
                "the op to erase does not exist"},
        Mistake{"ReplaceWhatIsErased",
                [](const Ids& ids, Rewriter& r) { r.Replace(ids.erased, NewOp("n")); },
                "the op to replace does not exist"},
        Mistake{"MoveWhatIsErased",
                [](const Ids& ids, Rewriter& r) { r.MoveBefore(ids.erased, ids.a); },
                "the op to move does not exist"},
        Mistake{"MoveWhatIsInvalid",
                [](const Ids& ids, Rewriter& r) { r.MoveBefore(OpId(), ids.a); },
                "the op to move does not exist"},
        Mistake{"MoveToAnotherBlock",
                [](const Ids& ids, Rewriter& r) { r.MoveBefore(ids.b, ids.d); },
                "op 1 (b): cannot move to before block 1, op 0 (d) in another block"},
        Mistake{"MoveTwice", [](const Ids& ids, Rewriter& r) { r.MoveBefore(ids.c, ids.b); },
                "op 2 (c): more than one edit replaces, erases or moves it"},
        Mistake{"ReplaceTwice", [](const Ids& ids, Rewriter& r) { r.Replace(ids.a, NewOp("n")); },
                "op 0 (a): more than one edit"},
        Mistake{"EraseWhatIsReplaced", [](const Ids& ids, Rewriter& r) { r.Erase(ids.a); },
                "op 0 (a): more than one edit"},
        Mistake{"EraseWhatMoves", [](const Ids& ids, Rewriter& r) { r.Erase(ids.c); },
                "op 2 (c): more than one edit"},
        Mistake{"ReplaceVariableThatNeverWas",
                [](const Ids&, Rewriter& r) { r.ReplaceVar(VarId(999), NewVar("other")); },
                "a variable to replace does not exist"},
        Mistake{"ReplaceInvalidVariable",
                [](const Ids&, Rewriter& r) { r.ReplaceVar(VarId(), NewVar("other")); },
                "a variable to replace does not exist"},
        Mistake{"ReplaceVariableByAnother",
                [](const Ids& ids, Rewriter& r) { r.ReplaceVar(ids.inner, NewVar("other")); },
                "variable inner: its replacement is called other"},
        Mistake{"ReplaceVariableTwice",
                [](const Ids& ids, Rewriter& r) { r.ReplaceVar(ids.v, NewVar("v")); },
                "variable v is replaced twice"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    ErasedVariables, CommitRefuses,
    ::testing::Values(
        Mistake{"ThatNeverWas", [](const Ids&, Rewriter& r) { r.EraseVar(VarId(999)); },
                "a variable to erase does not exist"},
        Mistake{"ThatIsReplaced", [](const Ids& ids, Rewriter& r) { r.EraseVar(ids.v); },
                "variable v: more than one edit replaces or erases it"},
        Mistake{"Twice",
                [](const Ids& ids, Rewriter& r) {
                  r.EraseVar(ids.inner);
                  r.EraseVar(ids.inner);
                },
                "variable inner: more than one edit replaces or erases it"},
        Mistake{"OfAnOpThatStays", [](const Ids& ids, Rewriter& r) { r.EraseVar(ids.inner); },
                "block 1, op 0 (d) names inner, a variable to erase"},
        Mistake{"OfANewOp",
                [](const Ids& ids, Rewriter& r) {
                  r.Erase(ids.d);
                  r.EraseVar(ids.inner);
                },
                "new op z names inner, a variable to erase"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
