// A forward pass of a random program (tests/properties/random_program.h) as it grows: the values
// that its next ops may read, and the ops so far.
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_POOL_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_POOL_H_

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/schema/infer.h"
#include "tests/properties/random_ops.h"
#include "tests/properties/random_values.h"

namespace weft::testing {

class ValuePool {
 public:
  // --- Values ------------------------------------------------------------------------------------

  const RandomValue& operator[](int value) const { return values_[value]; }
  const std::vector<RandomValue>& values() const { return values_; }
  // A value that only ops read which name it.
  int Add(RandomValue value);
  // Ops may draw the value as an argument, or may not any more.
  void Offer(int value) { pool_.push_back(value); }
  void Withdraw(int value);
  const std::vector<int>& offered() const { return pool_; }

  // Offered values of a class, from number `first` on; those made last come first.
  std::vector<int> Candidates(ArgumentClass of, int first) const;
  // The first of these, for the n-th of the choices; -1: there is none.
  int Pick(ArgumentClass of, const std::vector<int>& choices, size_t n) const;
  // The last value that the variable has.
  int Find(absl::string_view name) const;

  // --- Ops ---------------------------------------------------------------------------------------

  const std::vector<ForwardOp>& ops() const { return ops_; }
  void Append(ForwardOp op) { ops_.push_back(std::move(op)); }
  // Makes and offers the outputs: `count` in a slot that may hold several, or `state`, if that is
  // not -1. With `is_in_place`, the first takes the variable of an argument of its type, if there
  // is one. Returns whether the inputs fit.
  bool Infer(int count, int state, bool is_in_place, ForwardOp* made);

  // Ops that are always right. They return their first output.
  int Make(const std::string& type, ValueSlots inputs, AttrValues attrs = {});
  // The op goes to the block of another op. Nothing outside may read its output.
  int MakeInBlock(const std::string& type, ValueSlots inputs, AttrValues attrs,
                  std::vector<ForwardOp>* block);
  // A new variable with a value, which ops of a block overwrite.
  int Variable(int value);
  // Of one element on every rank and on one device.
  int Scalar(int value, const std::string& reduce);
  // Scalars of different ranks do not add up.
  int AsVector1(int value);

 private:
  bool InferTypes(const ForwardOp& made, const InferContext::Slots& out, size_t num_outputs,
                  std::array<InferContext::Types, 3>* types) const;
  TensorType UnknownSizes(const ForwardOp& made, int t) const;
  int Output(const ForwardOp& made, absl::string_view slot, const ThreeTypes& types,
             bool is_differentiable);
  std::string NameOfOutput(const ForwardOp& made, absl::string_view slot, const ThreeTypes& types);

  std::vector<RandomValue> values_;
  std::vector<int> pool_;  // arguments of ops
  std::vector<ForwardOp> ops_;
  bool is_in_place_ = false;  // the first output of the op that is inferred
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_POOL_H_
