// The walk of BatchFlow. One file for each part: batch_states.cc (what steps leave for the next),
// batch_flow.cc (ops), batch_sizes.cc, batch_blocks.cc, batch_gradients.cc.
#ifndef WEFT_OPS_ANALYSIS_VALUES_BATCH_INTERPRETER_H_
#define WEFT_OPS_ANALYSIS_VALUES_BATCH_INTERPRETER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/training/gradient_links.h"
#include "ops/analysis/training/gradient_names.h"
#include "ops/analysis/training/loss_gradients.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/constant_factors.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/analysis/values/step_walk.h"
#include "ops/analysis/values/sums_by_hand.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_key.h"
#include "ops/schema/type_table.h"
#include "proto/program.h"

namespace weft {

class BatchInterpreter final : private StepWalk<BatchValue> {
 public:
  BatchInterpreter(const ProgramFacts& facts, const BatchFlowOptions& options);

  BatchFlow Run();

 private:
  // What the walk finds of an op: relations by argument.
  struct Visited {
    std::vector<BatchRelation> inputs;
    BatchOutputs outputs;
  };
  // Indices of visited_.
  static constexpr uint32_t kNotVisited = 0;  // or nothing that gradient ops could follow
  static constexpr uint32_t kAllSame = 1;     // inputs and outputs; visited_ has no relations

  static constexpr BatchRelation kSame = BatchRelation::Replicated();

  // Whether most ops make unrelated values of the value, if it is not one itself.
  static bool IsLost(BatchRelation relation) {
    return relation.IsUnrelated() || relation.IsPartialOther();
  }

  // --- States ------------------------------------------------------------------------------------

  void SetStart();
  void BeginStep(std::vector<BatchValue>* values) override;
  // Parameters of optimizers, and their master weights, that an all-reduce reads.
  void FindAveragedParameters();
  BatchRelation Fed(absl::string_view name) const;
  bool CarryOver(Widening widening) override;
  // That ranks agree about what optimizers write is for others to prove.
  void VisitOptimizer(const Op& op, const SignatureFacts& facts);
  // Whether the factors of gradient and rate, whose product is the update, make up for each other.
  bool IsUpdateByRightProduct(const Op& op, const SignatureFacts& facts) const;
  // The average of linear updates is that of one device, if ranks average in every step.
  void VisitOwnUpdate(const Op& op, const SignatureFacts& facts);
  bool UpdatesAveraged(const Op& op) const;

  // --- Variables ---------------------------------------------------------------------------------

  // The op of this walk that last wrote the variable; invalid: none, or no variable.
  OpId WriterOf(VarId var) const { return var.valid() ? writers_[var.value()] : OpId(); }
  BatchValue Read(Symbol name) const;
  BatchValue Read(VarId var) const;
  void Write(const Op& op, Symbol name, const BatchValue& value);
  void Write(const Op& op, VarId var, const BatchValue& value);
  void ReduceInPlace(const Op& op, VarId var);
  void WriteAll(const Op& op, absl::Span<const Symbol> names, const BatchValue& value);
  // `into` becomes a value that is one or the other.
  static void Merge(const BatchValue& from, BatchValue* into, OpId cause);
  // The relation as an op that made it, from inputs.
  static BatchValue Made(const Op& op, BatchRelation relation, absl::Span<const BatchValue> ins);

  // --- Ops ---------------------------------------------------------------------------------------

  void WalkStep() override;
  void Visit(const Op& op) override;
  void VisitIgnored(const Op& op) override;
  void VisitFeed(const Op& op) override;
  void VisitPart(const Op& op, const Storage::Buffer& buffer, VarId part, Symbol source) override;
  // Zeros have the power of what they are added to, joined with, or chosen instead of.
  void AdaptZeros(const SignatureFacts& facts);
  // Whether the op fills its output with zeros, or copies zeros to it. Reads ins_.
  bool MakesZeros(const Op& op, const SignatureFacts& facts) const;
  // The split of a gathered value, and the sum of its parts. Returns whether the op is one of them.
  bool VisitGathered(const Op& op, const SignatureFacts& facts);
  absl::optional<TensorType> TypeOf(Symbol name) const;  // as it is declared
  void VisitFunction(const Op& op, const SignatureFacts& facts) override;
  // `made`: of its outputs.
  void RecordLostRelation(const Op& op, absl::Span<const BatchRelation> made);
  // Whether the op adds, copies or scales gradients in backward, as the gradients of such ops do.
  bool IsGradientLikeInputs(const Op& op, const SignatureFacts& facts,
                            const BatchValue& value) const;
  // Whether the op's factor stands for 1/n: the op says so, or divides a sum over ranks, or the
  // gradient of a loss in place. What gradient ops compute is no sum over ranks, and any other
  // factor may be 1/n by chance.
  bool DividesByRanks(const Op& op);
  // The same for the factor of the gradient that the optimizer has: it divides a sum over ranks, or
  // the original does not have it.
  bool RescalesByRanks(const Op& op, const SignatureFacts& facts, const BatchValue& gradient) const;
  // Whether a collective has summed it, and no op has divided it since. No gradient op has made it.
  static bool IsSumOverRanks(const BatchValue& value);
  void FindOwnScalings(const Program& original);
  void ReadInputs(const Op& op);
  void EditInputs(const Op& op);
  // Of a known type that is no floating-point type.
  bool IsInteger(VarId var) const;
  bool AnyIsSummed() const;
  static bool AreSame(absl::Span<const BatchValue> values);
  // Of ins_: an index of visited_, which ops that are alike share.
  uint32_t Apply(const Op& op, const SignatureFacts& facts);
  // Adds the relations of ins_ to numbers_.
  void AddRelationsToKey();
  // Of the inputs of an op that OpenSizeSlot names: see ApplyBatchRule.
  bool HasNoNegativeSizes(const Op& op) const;
  // Whether `op` reads a size of a tensor, or a constant that is not negative.
  bool ReadsSize(const Op& op, Symbol name) const;
  void VisitCollective(const Op& op, const CollectiveOp& collective) override;
  void Exchange(const Op& op, const CollectiveOp& collective, VarId in, VarId out);
  // `var`: that the op writes.
  BatchValue AfterCollectiveOf(const Op& op, const CollectiveOp& collective, const BatchValue& in,
                               VarId var) const;
  void RecordDivision(const Op& op, const BatchValue& in);
  void RecordForwardReduction(const Op& op, BatchRelation in, BatchRelation out);
  void AddForwardReduction(const Op& op, int power);
  // Of a value that the forward pass sums, as often as that does.
  void RecordGradientSum(const Op& op, BatchRelation in, BatchRelation out);

  // --- Blocks ------------------------------------------------------------------------------------

  // Relations descend at most two times from iteration to iteration of a loop.
  static constexpr int kMaxIterations = 4;

  // Whether the op's block runs on every rank as on one device.
  bool ConditionHolds(const Op& op, absl::string_view slot);
  // Walks over the op's blocks once. Outer variables and states have the values before or those
  // after it, and none that is known if it does not run as on one device, or too often. Returns
  // whether any relation has changed.
  bool WalkBlocks(const Op& op, bool runs_alike);
  // Returns whether the relation of the variable has changed.
  bool Leave(const Op& op, const LogEntry& entry, BatchValue inside, bool is_known);
  void VisitBranch(const Op& op) override;
  void VisitLoop(const Op& op, const SignatureFacts& facts) override;
  void VisitRecurrent(const Op& op);
  void VisitBlockGrad(const Op& op, const SignatureFacts& facts) override;

  // --- Gradients ---------------------------------------------------------------------------------
  //
  // A gradient op is the adjoint of the op that it differentiates, at the values that it reads. Its
  // outputs follow from how that op relates inputs to outputs, if what it reads has the relations
  // that the op has found; whether the values are the same does not matter.

  void VisitGradient(const Op& op, const SignatureFacts& facts);
  // The relation of a gradient that is multiplied, element by element, with values of the forward
  // pass, by a gradient op that belongs to no op of the program: such an op computes the gradient
  // of any product with these.
  BatchRelation ProductWithGradient(const Op& op, const SignatureFacts& facts) const;
  // Gradients of a gradient of zeros, each of the shape of its value.
  void WriteZeros(const Op& op, const SignatureFacts& facts);
  // Whether an output is unrelated, although no input is.
  bool HasLostRelation(const Op& visited) const;
  // The op that `op` differentiates; invalid: none. It has been visited, in advance if it follows.
  OpId FindDifferentiated(const Op& op, const SignatureFacts& facts);
  // Visits an op before its place, if all that it reads is known, and what it writes has no value
  // yet. Keeps what belongs to the current op. Returns whether it has.
  bool VisitAhead(const Op& op);
  // Null if `op` is no gradient op of the other.
  const GradientLinks* LinksOf(const Op& differentiated, const Op& op);
  // Of ins_: an index of visited_, which gradient ops that are alike share.
  uint32_t FollowGradient(const Op& op, const Op& differentiated);
  // What an input of a gradient op is to the op that it differentiates.
  enum class InputKind : uint8_t {
    kAbsent,    // no variable, or a gradient that is zero
    kGradient,  // the gradient of an output
    kValue,     // of the shape of the argument that it is linked to
    kZero,      // a value that is zero
    kOutput,    // an output, as the op has left it
    kUnlinked,  // a value that the op does not have
    kOther,     // of another shape than the argument, or the gradient of what the op does not have
  };
  // Sets kinds_.
  void FindInputKinds(const Op& op, const Op& differentiated, const GradientLinks& links);
  // Of any element types: a copy of a value may have fewer bits.
  bool HaveOneShape(VarId a, VarId b) const;
  InputKind ValueKind(Symbol name, bool is_zero, const Op& op, uint32_t argument) const;
  // Whether the gradient op computes without the value: each gradient of a product needs the other
  // operand, that of a dividend the divisor, and that of the divisor the quotient.
  bool IsUnread(const Op& op, const Op& differentiated, const GradientLinks& links,
                uint32_t argument);
  Visited Differentiate(const Op& op, const Op& differentiated, const GradientLinks& links);
  // Whether the gradient op reads what the rules of the op say about.
  bool IsAdjoint(const Op& differentiated, const GradientLinks& links) const;
  // The power of the losses whose gradients the op reads; none: unknown, or they are of different
  // powers.
  absl::optional<int> LossPowerOf(const Op& differentiated, const GradientLinks& links) const;
  BatchRelation RelationOf(const Op& visited, uint32_t argument) const;
  void VisitBranchGrad(const Op& op);
  // Takes the gradient op of a loop, or of what the program does not have, at its name: each
  // gradient follows from the variable whose name it has.
  void TakeAtItsName(const Op& op, const SignatureFacts& facts);
  absl::optional<int> LossPowerByNames(const Op& op, OpId* cause);

  const BatchFlowOptions& options_;
  const Symbol empty_;  // kEmptyVarName
  OpKeyBuilder keys_;
  std::vector<Visited> visited_;
  absl::flat_hash_map<std::string, uint32_t> visited_of_;  // by key: into visited_
  absl::flat_hash_map<std::string, uint32_t> key_ids_;
  DifferentiatedOps differentiated_;
  GradientNames gradient_names_;
  LossGradients loss_gradients_;
  const absl::flat_hash_set<OpId>& reduces_for_all_;
  ConstantFactors constant_factors_;
  absl::flat_hash_set<OpId> own_scalings_;   // by 1/n, which the original has
  absl::flat_hash_set<OpId> of_absent_ops_;  // flow_.absent_gradients_
  // By the signatures of an op and its gradient op.
  absl::node_hash_map<std::pair<uint32_t, uint32_t>, absl::optional<GradientLinks>> links_;
  // The last result of LinksOf by the signature of the gradient op: most have one partner.
  struct LastLinks {
    uint32_t differentiated = ~uint32_t{0};  // signature
    const GradientLinks* links = nullptr;
  };
  std::vector<LastLinks> last_links_;
  TypeTable types_;
  const std::vector<TypeId> type_ids_;  // by VarId
  BatchFlow flow_;

  absl::flat_hash_map<VarId, BatchValue> start_;  // others have the value of one device
  std::vector<VarId> states_;
  std::vector<OpId> writers_;                // by VarId
  std::vector<uint32_t> visits_of_ops_;      // by OpId: into visited_
  std::vector<bool> has_effect_;             // by OpId: in flow_
  std::vector<bool> has_lost_;               // by OpId: in flow_.lost_relations_
  absl::flat_hash_map<int, OpId> branches_;  // by block
  absl::flat_hash_set<VarId> averaged_;      // parameters
  absl::flat_hash_set<VarId> is_apart_;      // of averaged_: in flow_.states_
  bool has_guessed_ = false;                 // a division by the number of ranks
  // Of flow_.forward_reductions_, by output: all-reduces that sum, and those that RecordGradientSum
  // has added.
  absl::flat_hash_map<Symbol, int> num_sums_, num_gradient_sums_;

  // Of the current op.
  bool is_affected_ = false;  // its outputs
  bool is_guessed_ = false;
  std::vector<BatchValue> ins_;
  std::vector<InputKind> kinds_;  // of the inputs of a gradient op
  std::vector<BatchRelation> relations_;
  std::vector<uint32_t> numbers_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_BATCH_INTERPRETER_H_
