// A ProgramDesc, as far as the check needs it. Nothing is copied: everything points into the file.
#ifndef WEFT_CHECKER_PROGRAM_H_
#define WEFT_CHECKER_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "checker/wire.h"

namespace checker {

// A declaration.
struct Decl {
  std::string_view bytes, name;
  int type = -1;          // VarType.type: 7 a dense tensor
  int dtype = -1;         // of a tensor, of a table of rows, of the tensors of an array
  int64_t elements = -1;  // -1: unknown
  std::vector<int64_t> dims;
  bool persistable = false, is_data = false, is_parameter = false;
};
Decl ParseDecl(std::string_view bytes);

struct Attr {
  std::string_view name;
  int type = -1;
  uint64_t number = 0;    // of the types int, bool and block
  float real = 0;         // of type float
  std::string_view text;  // of type string
  std::vector<std::string_view> texts;
  std::vector<uint64_t> numbers;  // lists of ints and blocks
};
inline constexpr int kIntAttr = 0, kFloatAttr = 1, kStringAttr = 2, kIntsAttr = 3, kStringsAttr = 5,
                     kBoolAttr = 6, kBlockAttr = 8, kLongAttr = 9, kBlocksAttr = 10,
                     kLongsAttr = 11;
Attr ParseAttr(std::string_view bytes);

struct Slot {
  std::string_view name;
  size_t begin = 0, end = 0;  // into Op::args
};

// Parsed anew for each op, so that memory does not grow with the program.
struct Op {
  std::string_view bytes, type;
  std::vector<Slot> inputs, outputs;
  std::vector<std::string_view> args;
  struct AttrRef {
    std::string_view name, bytes;
    int type = -1;
  };
  std::vector<AttrRef> attrs;

  // Refuses a slot that is there twice among the inputs or the outputs, and an attribute that is
  // there with two values: which of them counts depends on the order.
  void Parse(std::string_view op);
  // False: there is none of that name.
  bool Find(std::string_view name, Attr* attr) const;
};

// Of ops that Parse accepts, whether they are equal but for the order of fields and for where in a
// script they were made.
bool IsSameOp(std::string_view a, std::string_view b);

struct Block {
  std::string_view bytes;
  std::vector<std::string_view> other_fields;  // neither declarations nor ops
};

struct Program {
  std::vector<Block> blocks;
  std::vector<std::string_view> other_fields;  // version and the like
  std::string_view setting;                    // what Weft says of its result
  uint64_t version = 0;                        // of Paddle: 2006002 of 2.6.2; 0: not said
};
Program ParseProgram(std::string_view file);

inline constexpr int kDense = 7, kRows = 8, kArray = 13, kRaw = 17;  // Decl::type

// Whether steps leave its value to the next.
inline bool IsState(const Decl& decl) {
  return decl.persistable && (decl.type == kDense || decl.type == kRows || decl.type == kArray);
}
// Bytes of an element of floats; 0: another type.
inline int SizeOf(int dtype) {
  return dtype == 4 || dtype == 22 ? 2 : dtype == 5 ? 4 : dtype == 6 ? 8 : 0;
}
inline bool IsName(std::string_view arg) { return !arg.empty() && arg != "@EMPTY@"; }

// The ops or the declarations of a block, in order.
class Parts {
 public:
  enum Kind { kDecls = 3, kOps = 4 };
  Parts(const Block& block, Kind kind) : fields_(block.bytes), kind_(kind) {}
  bool Next(std::string_view* part);

 private:
  Fields fields_;
  Kind kind_;
};

}  // namespace checker

#endif  // WEFT_CHECKER_PROGRAM_H_
