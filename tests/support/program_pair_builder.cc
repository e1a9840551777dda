#include "tests/support/program_pair_builder.h"

namespace weft::testing {

void ProgramPairBuilder::State(const std::string& name, const std::vector<int64_t>& dims,
                               pb::VarType::Type type, float value) {
  for (ProgramBuilder* program : {&main, &startup}) {
    program->Var(name, dims, type);
    program->last_var().set_persistable(true);
  }
  FillConstant(&startup, name, dims, type, value);
}

void FillConstant(ProgramBuilder* program, const std::string& name,
                  const std::vector<int64_t>& dims, pb::VarType::Type type, float value, int role) {
  program->Op("fill_constant", {}, {{"Out", {name}}}, role);
  program->IntAttr("dtype", type).FloatAttr("value", value).LongsAttr("shape", dims);
}

}  // namespace weft::testing
