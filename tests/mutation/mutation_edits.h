// What mutations do to programs.
#ifndef WEFT_TESTS_MUTATION_MUTATION_EDITS_H_
#define WEFT_TESTS_MUTATION_MUTATION_EDITS_H_

#include <set>
#include <string>

#include "tests/support/program_descs.h"

namespace weft::testing {

using Ops = google::protobuf::RepeatedPtrField<pb::OpDesc>;

// A ring that nobody sets up.
inline constexpr int kNoRing = 97;

struct Place {
  bool is_startup = false;
  int block = 0;
  int op = 0;
};

pb::ProgramDesc& ProgramOf(ProgramDescs* programs, const Place& place);
const pb::ProgramDesc& ProgramOf(const ProgramDescs& programs, const Place& place);
Ops* OpsOf(ProgramDescs* programs, const Place& place);
const Ops& OpsOf(const ProgramDescs& programs, const Place& place);
pb::OpDesc* OpOf(ProgramDescs* programs, const Place& place);

void Move(Ops* ops, int from, int to);
void Erase(Ops* ops, int index);
void Insert(Ops* ops, int index, const pb::OpDesc& op);

std::set<std::string> NamesOf(const pb::OpDesc& op);
bool ShareNames(const pb::OpDesc& a, const pb::OpDesc& b);
// In all slots of both sides.
void Rename(const std::string& from, const std::string& to, pb::OpDesc* op);

int RingOf(const pb::OpDesc& op);
int RoleOf(const pb::OpDesc& op);
bool IsUpdate(const pb::OpDesc& op);

// Declares `name` like `like`.
void Declare(const std::string& name, const std::string& like, const Place& place,
             ProgramDescs* programs);

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_MUTATION_EDITS_H_
