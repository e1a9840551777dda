// Small programs for tests, written in a few lines.
#ifndef WEFT_PROTO_TESTING_PROGRAM_BUILDER_H_
#define WEFT_PROTO_TESTING_PROGRAM_BUILDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/op_role.h"
#include "proto/program.h"

namespace weft::testing {

// Appends ops to a block; a variable that an op names and nobody has declared becomes a float
// tensor of 2 x 2.
//
//   Program p = ProgramBuilder()
//                   .Param("w")
//                   .Op("mul_grad", {{"X", {"x"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward)
//                   .Pairs({"w", "w@GRAD"})
//                   .Build();
class ProgramBuilder {
 public:
  using Slots = std::vector<std::pair<std::string, std::vector<std::string>>>;

  ProgramBuilder();

  ProgramBuilder& Var(const std::string& name, const std::vector<int64_t>& dims = {2, 2},
                      pb::VarType::Type dtype = pb::VarType::FP32);
  ProgramBuilder& Param(const std::string& name, const std::vector<int64_t>& dims = {2, 2});
  // SelectedRows of a float tensor of these dimensions.
  ProgramBuilder& Rows(const std::string& name, const std::vector<int64_t>& dims);
  // The variable that was declared last, for whatever else it needs.
  pb::VarDesc& last_var() { return *last_var_; }

  ProgramBuilder& Op(const std::string& type, const Slots& inputs, const Slots& outputs,
                     int role = kRoleForward);
  // op_role_var and other attributes of the op that was added last.
  ProgramBuilder& Pairs(const std::vector<std::string>& names);
  ProgramBuilder& IntAttr(const std::string& name, int value);
  ProgramBuilder& FloatAttr(const std::string& name, float value);
  ProgramBuilder& BoolAttr(const std::string& name, bool value);
  ProgramBuilder& LongsAttr(const std::string& name, const std::vector<int64_t>& values);
  ProgramBuilder& BlockAttr(const std::string& name, int block);
  pb::OpDesc& last_op() { return *last_op_; }

  // Adds a block; what follows goes there.
  ProgramBuilder& NewBlock(int parent = 0);
  // What follows goes to a block that is there.
  ProgramBuilder& InBlock(int block);

  const pb::ProgramDesc& desc() const { return desc_; }
  // Dies where Program::Parse refuses it.
  Program Build() const;

 private:
  pb::BlockDesc& block() { return *desc_.mutable_blocks(block_); }
  bool IsDeclared(const std::string& name) const;
  void Fill(const Slots& slots, google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* out);

  pb::ProgramDesc desc_;
  int block_ = 0;
  pb::VarDesc* last_var_ = nullptr;
  pb::OpDesc* last_op_ = nullptr;
};

// The ops of a block as short texts: "sgd(w, w@GRAD -> w)", inputs before outputs, and with the
// ring where the op has one: "c_allreduce_sum@1(g -> g)".
std::vector<std::string> OpTexts(const Program& program, int block = 0);

}  // namespace weft::testing

#endif  // WEFT_PROTO_TESTING_PROGRAM_BUILDER_H_
