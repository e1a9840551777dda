// Programs with groups of ranks: the verifier proves those that the passes write, and finds every
// mistake that is made in them here.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "tests/support/group_programs.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

const Groups kGroups = {{"w", {0, 1}}, {"v", {2, 3}}};

std::vector<std::string> Errors(const Findings& findings) {
  std::vector<std::string> errors;
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kError) errors.push_back(ToString(finding));
  }
  return errors;
}

VerifyOptions Expecting(const Groups& groups) {
  VerifyOptions options;
  options.setting.nranks = 4;
  options.setting.groups = groups;
  return options;
}

// Ops of a program that is changed.
class Edit {
 public:
  explicit Edit(const Program& program) : desc_(program.ToProto()) {}

  // The first op of that type which has the variable.
  pb::OpDesc* Find(const std::string& type, const std::string& variable) {
    for (pb::OpDesc& op : *ops()) {
      if (op.type() != type) continue;
      for (const auto& slots : {op.inputs(), op.outputs()}) {
        for (const auto& slot : slots) {
          for (const std::string& name : slot.arguments()) {
            if (name == variable) return &op;
          }
        }
      }
    }
    ADD_FAILURE() << "no " << type << " of " << variable;
    return nullptr;
  }
  pb::OpDesc* FindOnRing(const std::string& type, int ring) {
    for (pb::OpDesc& op : *ops()) {
      if (op.type() == type && Attr(&op, "ring_id")->i() == ring) return &op;
    }
    ADD_FAILURE() << "no " << type << " on ring " << ring;
    return nullptr;
  }
  static pb::OpDesc::Attr* Attr(pb::OpDesc* op, const std::string& name) {
    for (auto& attr : *op->mutable_attrs()) {
      if (attr.name() == name) return &attr;
    }
    auto* const attr = op->add_attrs();
    attr->set_name(name);
    attr->set_type(pb::INTS);
    return attr;
  }
  static void SetRanks(pb::OpDesc* op, const std::vector<int>& ranks) {
    auto* const attr = Attr(op, "group_ranks");
    attr->clear_ints();
    for (int rank : ranks) attr->add_ints(rank);
  }
  static void RemoveRanks(pb::OpDesc* op) {
    auto* const attrs = op->mutable_attrs();
    for (int i = 0; i < attrs->size(); ++i) {
      if (attrs->Get(i).name() == "group_ranks") return attrs->DeleteSubrange(i, 1);
    }
  }
  static void SetRing(pb::OpDesc* op, int ring) { Attr(op, "ring_id")->set_i(ring); }
  int PositionOf(const pb::OpDesc* op) {
    int i = 0;
    while (&ops()->Get(i) != op) ++i;
    return i;
  }
  void Remove(pb::OpDesc* op) { ops()->DeleteSubrange(PositionOf(op), 1); }

  google::protobuf::RepeatedPtrField<pb::OpDesc>* ops() {
    return desc_.mutable_blocks(0)->mutable_ops();
  }
  Program Done() const { return *Program::FromProto(desc_); }

 private:
  pb::ProgramDesc desc_;
};

class VerifyGroups : public ::testing::Test {
 protected:
  // One collective for each gradient.
  static GroupPrograms Right() {
    TranspileOptions options = OnFourRanks(kGroups);
    options.mode_flags["buckets"] = "none";
    return *WithGroups(options);
  }
  static std::vector<std::string> ErrorsOf(const std::function<void(Edit*)>& edit_main,
                                           const std::function<void(Edit*)>& edit_startup = {}) {
    const GroupPrograms right = Right();
    Edit main(right.main), startup(right.startup);
    if (edit_main) edit_main(&main);
    if (edit_startup) edit_startup(&startup);
    const Program changed = main.Done(), changed_startup = startup.Done();
    const GroupPrograms original = OneDevicePrograms();
    VerifyOptions options = Expecting(kGroups);
    std::vector<std::string> errors = Errors(Verify({{&changed, &changed_startup}}, options));
    options.original = original.pair();
    const std::vector<std::string> with = Errors(Verify({{&changed, &changed_startup}}, options));
    EXPECT_EQ(errors.empty(), with.empty()) << "with an original: " << with[0];
    return errors;
  }
};

TEST_F(VerifyGroups, WhatPassesWriteIsRight) {
  const GroupPrograms original = OneDevicePrograms();
  for (const Groups& groups :
       std::vector<Groups>{kGroups,
                           {{"w", {1, 3}}, {"v", {1, 3}}},
                           {{"w", {2}}},
                           {{"w", {0, 1, 2}}, {"v", {1, 2, 3}}, {"u", {3}}}}) {
    for (const char* buckets : {"bytes", "none", "optimal"}) {
      TranspileOptions transpile = OnFourRanks(groups);
      transpile.mode_flags["buckets"] = buckets;
      WEFT_ASSERT_OK_AND_ASSIGN(const GroupPrograms programs, WithGroups(transpile));
      VerifyOptions options = Expecting(groups);
      options.original = original.pair();
      const Findings findings = Verify({programs.pair()}, options);
      EXPECT_THAT(Errors(findings), IsEmpty());
      for (const Finding& finding : findings.all()) ADD_FAILURE() << ToString(finding);
      // Every rank has the program.
      EXPECT_THAT(
          Errors(Verify({programs.pair(), programs.pair(), programs.pair(), programs.pair()},
                        options)),
          IsEmpty());
    }
  }
}

TEST_F(VerifyGroups, WithoutANumberOfRanksTheProgramIsRightForAny) {
  TranspileOptions transpile = OnFourRanks(kGroups);
  transpile.cluster.nranks.reset();
  WEFT_ASSERT_OK_AND_ASSIGN(const GroupPrograms programs, WithGroups(transpile));
  const GroupPrograms original = OneDevicePrograms();
  VerifyOptions options = Expecting(kGroups);
  options.original = original.pair();
  for (int nranks : {0, 4, 7}) {
    options.setting.nranks = nranks == 0 ? absl::optional<int>() : nranks;
    EXPECT_THAT(Errors(Verify({programs.pair()}, options)), IsEmpty()) << nranks;
  }
  options.setting.nranks = 3;
  EXPECT_THAT(Errors(Verify({programs.pair()}, options)), Contains(HasSubstr("W308")));
}

TEST_F(VerifyGroups, OtherGroupsThanThoseOfTheProgramAreFound) {
  const GroupPrograms programs = Right();
  EXPECT_THAT(Errors(Verify({programs.pair()}, Expecting(kGroups))), IsEmpty());
  EXPECT_THAT(Errors(Verify({programs.pair()}, Expecting({{"w", {0, 1}}}))),
              Contains(AllOf(HasSubstr("W310"), HasSubstr("updates v by v@GRAD, which is not "
                                                          "reduced over all ranks"))));
  EXPECT_THAT(Errors(Verify({programs.pair()}, Expecting({{"w", {0, 1}}, {"v", {1, 2}}}))),
              Contains(HasSubstr("W310: for ranks 1, 2: ")));
  EXPECT_THAT(
      Errors(Verify({programs.pair()}, Expecting({{"w", {0, 1}}, {"v", {2, 3}}, {"u", {0, 1}}}))),
      Contains(AllOf(HasSubstr("W310: for ranks 0, 1: "), HasSubstr("updates u by u@GRAD"))));
}

TEST_F(VerifyGroups, MistakesAreFound) {
  EXPECT_THAT(ErrorsOf({}), IsEmpty());
  EXPECT_THAT(ErrorsOf([](Edit* e) { e->Remove(e->Find("c_allreduce_avg", "w@GRAD")); }),
              Contains(AllOf(HasSubstr("W310: for ranks 0, 1: "), HasSubstr("never reduced"))));
  EXPECT_THAT(ErrorsOf([](Edit* e) { e->Remove(e->Find("c_allreduce_avg", "u@GRAD")); }),
              Contains(HasSubstr("updates u by u@GRAD, which differs between ranks")));
  // On the ring of all ranks.
  EXPECT_THAT(ErrorsOf([](Edit* e) {
                pb::OpDesc* const op = e->Find("c_allreduce_avg", "w@GRAD");
                e->SetRing(op, 0);
                e->RemoveRanks(op);
              }),
              Contains(HasSubstr("updates w by w@GRAD, which is not reduced over ranks 0, 1")));
  // On the ring of another group.
  EXPECT_THAT(ErrorsOf([](Edit* e) {
                pb::OpDesc* const op = e->Find("c_allreduce_avg", "w@GRAD");
                e->SetRing(op, 2);
                e->SetRanks(op, {2, 3});
              }),
              Contains(HasSubstr("updates w by w@GRAD, which is not reduced over ranks 0, 1")));
  // The gradient of all ranks on a group's ring.
  EXPECT_THAT(ErrorsOf([](Edit* e) {
                pb::OpDesc* const op = e->Find("c_allreduce_avg", "u@GRAD");
                e->SetRing(op, 1);
                e->SetRanks(op, {0, 1});
              }),
              Contains(HasSubstr("updates u by u@GRAD, which is not reduced over all ranks")));
  // Reduced over the group, and then over all.
  EXPECT_THAT(ErrorsOf([](Edit* e) {
                pb::OpDesc again = *e->Find("c_allreduce_avg", "w@GRAD");
                const int at = e->PositionOf(e->Find("momentum", "w"));
                e->SetRing(&again, 0);
                e->RemoveRanks(&again);
                auto* const calc = e->Attr(&again, "use_calc_stream");
                calc->set_type(pb::BOOLEAN);
                calc->set_b(true);
                *e->ops()->Add() = again;
                for (int i = e->ops()->size() - 1; i > at; --i) e->ops()->SwapElements(i, i - 1);
              }),
              Contains(HasSubstr("which is not reduced over ranks 0, 1")));
  EXPECT_THAT(
      ErrorsOf([](Edit* e) { e->Find("c_allreduce_avg", "w@GRAD")->set_type("c_allreduce_sum"); }),
      Contains(HasSubstr("W312: for ranks 0, 1: ")));
  // Updated by another gradient.
  EXPECT_THAT(ErrorsOf([](Edit* e) {
                for (auto& slot : *e->Find("momentum", "w")->mutable_inputs()) {
                  if (slot.parameter() == "Grad") *slot.mutable_arguments(0) = "v@GRAD";
                }
              }),
              Contains(HasSubstr("W310: for ranks 0, 1: ")));
  EXPECT_THAT(ErrorsOf([](Edit* e) { e->Remove(e->Find("c_wait_comm", "w@GRAD")); }),
              Contains(HasSubstr("W40")));
}

TEST_F(VerifyGroups, ParametersAreBroadcastWithinTheirGroups) {
  const GroupPrograms original = OneDevicePrograms();
  for (const Groups& groups :
       std::vector<Groups>{kGroups, {{"w", {1, 3}}, {"v", {1, 2, 3}}}, {{"u", {2}}}}) {
    for (const char* period : {"1", "3"}) {
      SCOPED_TRACE(period);
      TranspileOptions transpile = OnFourRanks(groups);
      transpile.mode = "megengine";
      transpile.mode_flags = {{"reduce_method", "mean"}, {"bcast_period", period}};
      WEFT_ASSERT_OK_AND_ASSIGN(const GroupPrograms programs, WithGroups(transpile));
      VerifyOptions options = Expecting(groups);
      options.original = original.pair();
      EXPECT_THAT(Errors(Verify({programs.pair()}, options)), IsEmpty());
      EXPECT_THAT(
          Errors(Verify({programs.pair(), programs.pair(), programs.pair(), programs.pair()},
                        options)),
          IsEmpty());
    }
  }
}

TEST_F(VerifyGroups, MistakesOfBroadcastsAreFound) {
  TranspileOptions transpile = OnFourRanks(kGroups);
  transpile.mode = "megengine";
  transpile.mode_flags = {{"reduce_method", "mean"}, {"bcast_period", "1"}};
  WEFT_ASSERT_OK_AND_ASSIGN(const GroupPrograms programs, WithGroups(transpile));
  const GroupPrograms original = OneDevicePrograms();
  const auto errors_of = [&](const std::function<void(Edit*)>& change) {
    Edit edit(programs.main);
    change(&edit);
    const Program changed = edit.Done();
    VerifyOptions options = Expecting(kGroups);
    options.original = original.pair();
    return Errors(Verify({{&changed, &programs.startup}}, options));
  };
  EXPECT_THAT(errors_of([](Edit*) {}), IsEmpty());
  // On other ranks than those of the ring.
  EXPECT_THAT(errors_of([](Edit* e) {
                e->SetRanks(e->Find("c_broadcast", "w"), {0, 2});
              }),
              Contains(HasSubstr("W308")));
  EXPECT_THAT(errors_of([](Edit* e) { e->RemoveRanks(e->Find("c_broadcast", "w")); }),
              Contains(HasSubstr("W308")));
  // From a rank that the ring does not have.
  EXPECT_THAT(errors_of([](Edit* e) { e->Attr(e->Find("c_broadcast", "v"), "root")->set_i(2); }),
              Contains(HasSubstr("W303")));
  // On the ring of all ranks, which the group has nothing to do with.
  EXPECT_THAT(errors_of([](Edit* e) {
                e->SetRing(e->Find("c_broadcast", "w"), 0);
                e->RemoveRanks(e->Find("c_broadcast", "w"));
              }),
              Contains(HasSubstr("for ranks 0, 1: ")));
  // On the ring of another group.
  EXPECT_THAT(errors_of([](Edit* e) {
                e->SetRing(e->Find("c_broadcast", "w"), 2);
                e->SetRanks(e->Find("c_broadcast", "w"), {2, 3});
              }),
              Contains(HasSubstr("for ranks 0, 1: ")));
  // A parameter of all ranks on the ring of a group.
  EXPECT_THAT(errors_of([](Edit* e) {
                e->SetRing(e->Find("c_broadcast", "u"), 1);
                e->SetRanks(e->Find("c_broadcast", "u"), {0, 1});
              }),
              Contains(HasSubstr("updates u")));
  EXPECT_THAT(errors_of([](Edit* e) { e->Remove(e->Find("c_wait_comm", "w")); }),
              Contains(HasSubstr("W40")));
}

// What some of the ranks have computed together is nothing that one device computes.
TEST_F(VerifyGroups, ValuesThatAGroupExchangesForwardAreUnknown) {
  EXPECT_THAT(ErrorsOf([](Edit* e) {
                pb::OpDesc* const op = e->Find("c_allreduce_avg", "w@GRAD");
                pb::OpDesc forward = *op;
                for (auto* slots : {forward.mutable_inputs(), forward.mutable_outputs()}) {
                  for (auto& slot : *slots) *slot.mutable_arguments(0) = "ab";
                }
                auto* const calc = e->Attr(&forward, "use_calc_stream");
                calc->set_type(pb::BOOLEAN);
                calc->set_b(true);
                e->Attr(&forward, "op_role")->set_i(0);
                const int at = e->PositionOf(e->Find("elementwise_add", "y"));
                *e->ops()->Add() = forward;
                for (int i = e->ops()->size() - 1; i > at; --i) e->ops()->SwapElements(i, i - 1);
              }),
              Contains(HasSubstr("updates u by u@GRAD, which is computed from what op 4 "
                                 "(c_allreduce_avg) exchanges over ranks 0, 1")));
}

TEST_F(VerifyGroups, RingsThatContradictThemselvesAreFound) {
  const auto ranks_of_w = [](std::vector<int> ranks) {
    return [ranks](Edit* e) { e->SetRanks(e->Find("c_allreduce_avg", "w@GRAD"), ranks); };
  };
  const auto ring_1 = [](std::vector<int> ranks) {
    return [ranks](Edit* e) {
      e->SetRanks(e->FindOnRing("c_comm_init_all", 1), ranks);
      e->SetRanks(e->FindOnRing("c_broadcast", 1), ranks);
    };
  };
  EXPECT_THAT(ErrorsOf(ranks_of_w({0, 2})), Contains(HasSubstr("W308")));
  EXPECT_THAT(ErrorsOf({}, ring_1({0, 2})), Contains(HasSubstr("W308")));
  EXPECT_THAT(ErrorsOf(ranks_of_w({0, 9}), ring_1({0, 9})),
              Contains(HasSubstr("expected ranks below 4, found ranks 0, 9")));
  EXPECT_THAT(ErrorsOf(ranks_of_w({1, 0})),
              Contains(HasSubstr("expected distinct ranks in ascending order, found 1, 0")));
  EXPECT_THAT(ErrorsOf(ranks_of_w({})), Contains(HasSubstr("found none")));
  EXPECT_THAT(ErrorsOf([](Edit* e) {
                e->Attr(e->Find("c_allreduce_avg", "w@GRAD"), "group_ranks")->set_type(pb::LONGS);
              }),
              Contains(HasSubstr("W308")));
  EXPECT_THAT(ErrorsOf([](Edit* e) { e->RemoveRanks(e->Find("c_allreduce_avg", "w@GRAD")); }),
              Contains(HasSubstr("found all ranks")));
  EXPECT_THAT(ErrorsOf({}, [](Edit* e) { e->RemoveRanks(e->FindOnRing("c_broadcast", 1)); }),
              Contains(HasSubstr("W308")));
  EXPECT_THAT(
      ErrorsOf({}, [](Edit* e) { e->Attr(e->FindOnRing("c_broadcast", 1), "root")->set_i(2); }),
      Contains(HasSubstr("W303")));
}

// Of the programs of 4 ranks, that of `rank` is changed.
TEST_F(VerifyGroups, OnlyTheRanksOfARingNeedItsCalls) {
  const auto errors_of = [](int rank, const char* gradient) {
    const GroupPrograms right = Right();
    Edit edit(right.main);
    edit.Remove(edit.Find("c_allreduce_avg", gradient));
    const Program changed = edit.Done();
    std::vector<ConstProgramPair> ranks(4, right.pair());
    ranks[rank].main = &changed;
    return Errors(Verify(ranks, Expecting(kGroups)));
  };
  EXPECT_THAT(errors_of(2, "w@GRAD"), IsEmpty());
  EXPECT_THAT(errors_of(0, "v@GRAD"), IsEmpty());
  EXPECT_THAT(errors_of(1, "w@GRAD"), Contains(HasSubstr("W501")));
  EXPECT_THAT(errors_of(3, "v@GRAD"), Contains(HasSubstr("W501")));
  EXPECT_THAT(errors_of(3, "u@GRAD"), Contains(HasSubstr("W501")));
}

// Transpile verifies: Right() lacks what these add.
TEST_F(VerifyGroups, OtherFeaturesCombineWithGroups) {
  for (const char* passes :
       {"grad-accumulate{k=2},comm-init,broadcast-params,grad-reduce{reduce_method=mean},"
        "periodic-broadcast{bcast_period=2},sync-elimination",
        "set-optimizer{lr=0.1,momentum=0.5},comm-init,broadcast-params,grad-all-reduce{scale=avg,"
        "buckets=bytes},periodic-broadcast{bcast_period=1},sync-elimination",
        "comm-init,broadcast-params,grad-reduce{reduce_method=mean,comm_dtype=fp16,buckets=bytes},"
        "periodic-broadcast{bcast_period=2},sync-elimination"}) {
    SCOPED_TRACE(passes);
    TranspileOptions options = OnFourRanks(kGroups);
    options.mode = "";
    options.passes = passes;
    options.verification = Verification::kAfterEachPass;
    EXPECT_THAT(WithGroups(options), ::weft::testing::IsOk());
  }
}

TEST_F(VerifyGroups, ModesWithoutGroupsRefuseThem) {
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  TranspileOptions options = OnFourRanks(kGroups);
  options.mode = "local_sgd";
  EXPECT_THAT(WithGroups(options).status(),
              StatusIs(kUnimplemented, HasSubstr("local-sgd: group 'of_0_1' of ranks: expected no "
                                                 "groups")));
  options.mode = "multi_thread";
  options.mode_flags["trans_mode"] = "all_gather";
  EXPECT_THAT(WithGroups(options).status(),
              StatusIs(kUnimplemented, HasSubstr("gather-gradients: group 'of_0_1'")));
  options = OnFourRanks(kGroups);
  options.mode_flags["exact_loss"] = "on";
  EXPECT_THAT(WithGroups(options).status(),
              StatusIs(kUnimplemented, HasSubstr("exact-loss: group 'of_0_1'")));
  options = OnFourRanks(kGroups);
  options.mode_flags["statistics"] = "true";
  EXPECT_THAT(WithGroups(options).status(),
              StatusIs(kUnimplemented, HasSubstr("reduce-statistics: group 'of_0_1'")));
  options = OnFourRanks(kGroups);
  options.mode_flags["scale"] = "loss_grad";
  EXPECT_THAT(WithGroups(options).status(),
              IsInvalidArgument("scale loss_grad divides by the number of all ranks"));
  options = OnFourRanks(kGroups);
  options.dialect = Dialect::kPaddle;
  options.cluster.endpoints = {"a:1", "b:1", "c:1", "d:1"};
  EXPECT_THAT(WithGroups(options).status(),
              StatusIs(kUnimplemented, HasSubstr("Paddle's transpiler has no rings")));
  options = OnFourRanks(kGroups);
  options.distributed_params = {"w"};
  EXPECT_THAT(WithGroups(options).status(),
              IsInvalidArgument("expected a replicated parameter, found a distributed one"));
}

// The programs of rank `rank`.
GroupPrograms OnEndpoint(int rank) {
  TranspileOptions options = OnFourRanks(kGroups);
  options.cluster.nranks.reset();
  options.cluster.endpoints = {"a:1", "b:1", "c:1", "d:1"};
  options.cluster.rank = rank;
  absl::StatusOr<GroupPrograms> programs = WithGroups(options);
  if (programs.ok()) return *std::move(programs);
  ADD_FAILURE() << programs.status();
  return OneDevicePrograms();
}

// A rank in no group decides as the others do.
TEST_F(VerifyGroups, RankOutsideOfAllGroupsCallsWhatTheOthersCall) {
  const Groups groups = {{"w", {0, 1}}};
  const std::vector<std::pair<const char*, std::map<std::string, std::string>>> modes = {
      {"grad_allreduce", {}},
      {"singa_plain", {}},
      {"megengine", {{"reduce_method", "mean"}, {"bcast_period", "1"}}},
      {"megengine", {{"reduce_method", "mean"}, {"bcast_period", "2"}}}};
  for (const auto& [mode, flags] : modes) {
    std::vector<GroupPrograms> programs;
    for (int rank = 0; rank < 4; ++rank) {
      TranspileOptions options = OnFourRanks(groups);
      options.mode = mode;
      options.mode_flags = flags;
      options.cluster.nranks.reset();
      options.cluster.endpoints = {"a:1", "b:1", "c:1", "d:1"};
      options.cluster.rank = rank;
      WEFT_ASSERT_OK_AND_ASSIGN(GroupPrograms of_rank, WithGroups(options));
      programs.push_back(std::move(of_rank));
    }
    std::vector<ConstProgramPair> ranks;
    for (const GroupPrograms& of_rank : programs) ranks.push_back({&of_rank.main, nullptr});
    VerifyOptions verify;
    verify.setting.nranks = 4;
    verify.layers = {Layer::kAcrossRanks};
    EXPECT_THAT(ToStatus(Verify(ranks, verify)), ::weft::testing::IsOk()) << mode;
  }
}

TEST_F(VerifyGroups, WithEndpointsRanksHaveTheRingsOfTheirGroups) {
  std::vector<GroupPrograms> programs;
  for (int rank = 0; rank < 4; ++rank) programs.push_back(OnEndpoint(rank));
  const GroupPrograms original = OneDevicePrograms();
  VerifyOptions options = Expecting(kGroups);
  options.original = original.pair();
  const auto errors_of = [&] {
    std::vector<ConstProgramPair> ranks;
    for (const GroupPrograms& of_rank : programs) ranks.push_back(of_rank.pair());
    return Errors(Verify(ranks, options));
  };
  EXPECT_THAT(errors_of(), IsEmpty());

  const auto joins = [](const GroupPrograms& of_rank) {
    std::vector<std::string> texts;
    const pb::ProgramDesc startup = of_rank.startup.ToProto();
    for (const pb::OpDesc& op : startup.blocks(0).ops()) {
      if (op.type() != "c_comm_init") continue;
      std::map<std::string, const pb::OpDesc::Attr*> attrs;
      for (const auto& attr : op.attrs()) attrs[attr.name()] = &attr;
      texts.push_back(absl::StrCat("ring ", attrs["ring_id"]->i(), ": ", attrs["rank"]->i(), " of ",
                                   attrs["nranks"]->i()));
    }
    return texts;
  };
  EXPECT_THAT(joins(programs[1]), ElementsAre("ring 0: 1 of 4", "ring 1: 1 of 2"));
  EXPECT_THAT(joins(programs[2]), ElementsAre("ring 0: 2 of 4", "ring 2: 0 of 2"));

  // The ring of ranks 2 and 3: other endpoints, another rank, no such ring.
  const GroupPrograms right = OnEndpoint(3);
  {
    Edit edit(right.startup);
    edit.Attr(edit.FindOnRing("c_gen_nccl_id", 2), "other_endpoints")->set_strings(0, "e:1");
    programs[3].startup = edit.Done();
    EXPECT_THAT(errors_of(), Contains(HasSubstr("W509")));
  }
  {
    Edit edit(right.startup);
    for (const char* type : {"c_gen_nccl_id", "c_comm_init"}) {
      edit.Attr(edit.FindOnRing(type, 2), "rank")->set_i(0);
    }
    programs[3].startup = edit.Done();
    EXPECT_THAT(errors_of(), Contains(HasSubstr("W50")));
  }
  {
    Edit edit(right.startup);
    edit.Attr(edit.FindOnRing("c_comm_init", 2), "nranks")->set_i(4);
    programs[3].startup = edit.Done();
    EXPECT_THAT(errors_of(), Contains(HasSubstr("W302")));
  }
  {
    programs[3] = OnEndpoint(3);
    EXPECT_THAT(errors_of(), IsEmpty());
    Edit edit(right.main);
    edit.Remove(edit.FindOnRing("c_allreduce_avg", 2));
    programs[3].main = edit.Done();
    EXPECT_THAT(errors_of(), Contains(HasSubstr("W501")));
  }
  programs[3] = OnEndpoint(1);
  EXPECT_THAT(errors_of(), Contains(HasSubstr("W50")));
}

TEST_F(VerifyGroups, SumsAreOfTheGroup) {
  TranspileOptions transpile = OnFourRanks(kGroups);
  transpile.mode_flags["scale"] = "none";
  WEFT_ASSERT_OK_AND_ASSIGN(const GroupPrograms programs, WithGroups(transpile));
  VerifyOptions options = Expecting(kGroups);
  options.setting.reduction = Setting::Reduction::kSum;
  EXPECT_THAT(Errors(Verify({programs.pair()}, options)), IsEmpty());
  options.setting.reduction = Setting::Reduction::kMean;
  EXPECT_THAT(Errors(Verify({programs.pair()}, options)),
              Contains(HasSubstr("W312: for ranks 2, 3: ")));
}

}  // namespace
}  // namespace weft::testing
