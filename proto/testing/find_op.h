// Ops of programs as messages.
#ifndef WEFT_PROTO_TESTING_FIND_OP_H_
#define WEFT_PROTO_TESTING_FIND_OP_H_

#include <string>

#include "gtest/gtest.h"
#include "proto/framework.pb.h"

namespace weft::testing {

// Op number `turn` of that type in a block; null, and a failure of the test, if there is none.
inline pb::OpDesc* FindOp(pb::ProgramDesc* program, const std::string& type, int turn = 0,
                          int block = 0) {
  for (pb::OpDesc& op : *program->mutable_blocks(block)->mutable_ops()) {
    if (op.type() == type && turn-- == 0) return &op;
  }
  ADD_FAILURE() << "no op " << type;
  return nullptr;
}

}  // namespace weft::testing

#endif  // WEFT_PROTO_TESTING_FIND_OP_H_
