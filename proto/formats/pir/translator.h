// One file as a program (proto/formats/pir/importer.h), op by op.
#ifndef WEFT_PROTO_FORMATS_PIR_TRANSLATOR_H_
#define WEFT_PROTO_FORMATS_PIR_TRANSLATOR_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/block_writer.h"
#include "proto/formats/pir/desc_attributes.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/pir/survey.h"
#include "proto/formats/pir/training.h"
#include "proto/formats/pir/variables.h"

namespace weft::pir {

// What becomes of a file.
struct Translation {
  std::string program;
  std::vector<uint32_t> op_of_id;  // of the document
  // By value: the block that declares its variable, and which one it is there. kNoVar: none.
  struct Declaration {
    VarIndex in_block = kNoVar;
    uint32_t block = 0;
  };
  std::vector<Declaration> variable_of_value;
  std::vector<std::string> distributed_params;
};

// Ops are in translator.cc, what an op of the table becomes in translate_op.cc, control flow in
// translate_branches.cc.
class Translator {
 public:
  Translator(const Document& document, Training training, Survey survey)
      : document_(document),
        training_(std::move(training)),
        survey_(std::move(survey)),
        vars_(document_, training_, survey_),
        blocks_(document_, survey_) {}

  absl::StatusOr<Translation> Run();

 private:
  DocumentOp op(uint32_t i) const { return document_.op(i); }
  absl::Span<const Operand> operands(uint32_t i) const { return document_.operands(op(i)); }

  // --- Ops ---------------------------------------------------------------------------------------

  absl::Status VisitOps(uint32_t block);
  absl::Status Visit(uint32_t i);
  absl::Status VisitParameter(uint32_t i);
  // Moves a schedule from the attributes of the op to its variable.
  absl::Status TakeSchedule();

  // Of "OA", for every result; false where the file says nothing. Read once for an op, whose
  // results may be many.
  struct ResultFlags {
    uint32_t op = kNoOp;
    std::vector<bool> persistable, stop_gradient;
  };
  absl::StatusOr<const ResultFlags*> FlagsOfResults(uint32_t i);
  absl::Status VisitData(uint32_t i);

  // Names the variable of its operand; if that has another name, copies it.
  absl::Status VisitSink(uint32_t i);
  // Accounts for bytes that an op copies from elsewhere in the file: names of variables, lists,
  // constants. ResourceExhausted if they take many times the file.
  absl::Status Spend(size_t bytes);
  absl::Status SpendConstant(ValueIndex value);

  // A list of lists would be as many tensors as it has paths.
  absl::Status VisitCombine(uint32_t i);
  absl::Status VisitSplit(uint32_t i);
  // Another name for the same memory, of which no gradient is taken.
  absl::Status VisitShare(uint32_t i);

  using Slots = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;
  void AddArgument(absl::string_view slot, VarIndex var, Slots* slots);
  static pb::OpDesc::Var* AddSlot(absl::string_view slot, Slots* slots);
  absl::Status ReadInto(ValueIndex value, pb::OpDesc::Var* slot);

  // By a rule of the table.
  absl::Status Translate(uint32_t i, const OpRule& rule);
  absl::Status AddResult(uint32_t i, uint32_t r, const OpRule* rule, absl::string_view slot);
  // A tensor that gives an attribute: an argument of the slot, or the numbers that it is stacked
  // from, unless `list_slot` is empty.
  absl::Status ReadTensor(ValueIndex value, absl::string_view slot, absl::string_view list_slot);
  // The list of tensors of one element that a 1.stack has made the value from; kNoValue: another
  // op, or other tensors.
  absl::StatusOr<ValueIndex> StackedNumbers(ValueIndex value);
  // Where Paddle declares another element type than its op makes.
  void SetType(ValueIndex value, pb::VarType::Type dtype);
  void SetTypesOfRnn(uint32_t i, const OpRule& rule);

  // The variables of a list that an op makes: those that 0.split takes apart, or those of the list
  // that it overwrites, unless that is kNoValue.
  absl::Status AddList(ValueIndex list, size_t size, ValueIndex overwritten, pb::OpDesc::Var* out);

  // Forward: a variable of the dims of X, after a 0. Backward: that of the forward op, or of
  // another op on the same X.
  absl::Status AddXShape(uint32_t i);

  // In ProgramDesc, a gradient op has the attributes of its forward op.
  absl::Status AddForwardAttributes(uint32_t forward);
  absl::optional<VarIndex> FindXShape(uint32_t i) const;

  // False for a gradient op whose forward op is not known.
  bool HasXShape(uint32_t i) const;

  // A constant list that an op reads as a tensor.
  absl::Status VisitIntegers(uint32_t i);

  absl::Status VisitShape(uint32_t i);

  // ProgramDesc's op has the type of its operands.
  absl::Status VisitRange(uint32_t i);

  // As it is, under Paddle's name.
  absl::Status Keep(uint32_t i);
  // The same of an op with blocks. It also reads, and may write, what its blocks do.
  absl::Status KeepWithBlocks(uint32_t i);
  absl::Status KeepBlock(uint32_t block);

  // --- Control flow ------------------------------------------------------------------------------

  // As Paddle's old format has it: each block writes variables of its own outside, if the condition
  // holds, or if it does not, and select_input takes those of the block that ran.
  absl::Status VisitIf(uint32_t i);

  // Of an op with regions, without those of ops in its blocks.
  std::vector<uint32_t> BlocksOf(uint32_t i) const;
  // For names that stay as they are when a pass inserts ops: after the first result, or the
  // condition.
  std::string StemOf(uint32_t i, absl::string_view type);
  // The condition as a number, by which select_input selects.
  VarIndex MaskOf(uint32_t i, VarIndex condition, const std::string& stem);
  // The results of the 1.if, from those of its blocks.
  absl::Status SelectResults(uint32_t i, VarIndex mask, const std::vector<VarIndex> (&results)[2]);

  // A block whose yield gives `results`, which are variables around it. It also writes those
  // variables around it that its ops overwrite.
  absl::Status VisitBranch(uint32_t i, uint32_t block, VarIndex condition,
                           const std::string& scope_name, const std::vector<VarIndex>& results);

  // As a while of variables of its own: the condition, and one for each value.
  absl::Status VisitWhile(uint32_t i);
  absl::Status WriteNextState(uint32_t yield, const std::string& stem,
                              const std::vector<VarIndex>& state);

  // Variables around a block that its ops, and those of blocks in it, read.
  absl::StatusOr<std::vector<VarIndex>> CapturedBy(uint32_t block);

  // The variables around a block that is done, which its ops overwrite: without the first
  // `overwritten_before` of overwritten_.
  std::vector<VarIndex> LeaveBranch(size_t overwritten_before);

  // Of a list: of its elements.
  std::vector<VarIndex> VariablesOf(ValueIndex value) const;

  // A variable with the shape of another one.
  VarIndex NewTensor(const std::string& name, pb::VarType::Type dtype, VarIndex like);

  // An op that is a part of op i of the file, with the attributes and outputs that desc_ has
  // already; desc_ is empty then.
  void WriteHelper(uint32_t i, absl::string_view type,
                   const std::vector<std::pair<absl::string_view, std::vector<VarIndex>>>& inputs,
                   const std::vector<VarIndex>& outputs);

  // Adds desc_, with role, pairs and the layer that made it.
  absl::Status Add(uint32_t i);
  Translation Finish();
  const Document& document_;
  const Training training_;
  const Survey survey_;
  Variables vars_;
  size_t copied_ = 0;                                               // bytes: see Spend
  absl::flat_hash_map<ValueIndex, std::vector<VarIndex>> members_;  // of lists that ops make
  absl::flat_hash_map<ValueIndex, VarIndex> xshape_of_result_, xshape_of_x_;
  absl::flat_hash_map<VarIndex, uint32_t> forward_of_xshape_;
  std::vector<Training::Pair> pairs_;  // in the order of ops
  pb::OpDesc desc_;                    // of the op that is visited
  DescAttributes attrs_{document_, &desc_};
  std::vector<Attribute> attributes_;  // of the same
  ResultFlags flags_;                  // of the op that was asked for last
  std::vector<std::string> distributed_params_;
  absl::flat_hash_map<int64_t, int> ops_of_condition_;  // by id: those without results
  std::vector<VarIndex> overwritten_;  // around a block that is visited, by its ops
  BlockWriter blocks_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_TRANSLATOR_H_
