#include "transpiler/passes/support/rings.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

TEST(Rings, RingThatIsSetUpIsInUse) {
  const Program startup = CompactProgram("c_comm_init_all() {ring_id=1}");
  WEFT_EXPECT_OK(RefuseRingsInUse(startup, 1));
  EXPECT_THAT(RefuseRingsInUse(startup, 2),
              IsFailedPrecondition("op 0 (c_comm_init_all) already sets up ring 1"));
}

TEST(Rings, IdOfARingIsNotTheRing) {
  WEFT_EXPECT_OK(RefuseRingsInUse(
      CompactProgram("var id : raw\nOut=[id] = c_gen_nccl_id() {ring_id=0, rank=0, "
                     "endpoint=\"a:1\", other_endpoints=strings[]}"),
      1));
}

TEST(Rings, IdIsAPersistableRawVariable) {
  const pb::VarDesc var = RingIdVar("nccl_id_0");
  EXPECT_EQ(var.name(), "nccl_id_0");
  EXPECT_EQ(var.type().type(), pb::VarType::RAW);
  EXPECT_TRUE(var.persistable());
}

TEST(Rings, OptionTakesNumbersFromOneToTheMostRings) {
  int nrings = 1;
  OptionBinder bind;
  BindRings(bind, &nrings);
  WEFT_EXPECT_OK(bind.Set({{"nrings", "1024"}}));
  EXPECT_EQ(nrings, kMaxRings);
  for (const char* wrong : {"0", "1025", "x"}) {
    EXPECT_FALSE(bind.Set({{"nrings", wrong}}).ok()) << wrong;
  }
}

}  // namespace
}  // namespace weft::testing
