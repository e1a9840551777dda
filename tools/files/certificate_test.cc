// What the checker accepts of rewrites, rule by rule, and why it refuses the others.
#include "tools/files/certificate.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "checker/check.h"
#include "checker/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using Lines = std::vector<std::string>;

constexpr char kDecls[] = R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 4] persistable
    var b : fp32[4] persistable
    var mean : fp32[4] persistable
    var lr : fp32[1] persistable
    var h : fp32[-1, 4]
    var k : fp32[-1, 4]
    var loss : fp32[1]
    var loss@GRAD : fp32[1]
    var k@GRAD : fp32[-1, 4]
    var h@GRAD : fp32[-1, 4]
    var w@GRAD : fp32[4, 4]
    var b@GRAD : fp32[4]
)";

// Indexes are those that tests insert before.
const Lines& Original() {
  static const auto* const lines = new Lines{
      /*0*/ "Out=[h] = mul(X=[x], Y=[w])",
      /*1*/ "Out=[k] = elementwise_add(X=[h], Y=[b])",
      /*2*/ "Out=[loss] = mean(X=[k])",
      /*3*/ "Out=[loss@GRAD] = fill_constant() role=backward|loss {value=1.0}",
      /*4*/ "X@GRAD=[k@GRAD] = mean_grad(Out@GRAD=[loss@GRAD], X=[k]) role=backward",
      /*5*/
      "X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(Out@GRAD=[k@GRAD], X=[h], "
      "Y=[b]) role=backward vars=[b, b@GRAD]",
      /*6*/
      "Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[w]) role=backward vars=[w, "
      "w@GRAD]",
      /*7*/ "ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize",
      /*8*/ "ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize"};
  return *lines;
}

std::string BytesOfText(const std::string& text) {
  const auto program = ParseProgramText(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return program->ToProto().SerializeAsString();
}

std::string Bytes(const Lines& ops, const std::string& more_decls = "",
                  const std::string& version = "") {
  return BytesOfText(absl::StrCat("program", version, " {\n  block 0 parent=-1 {\n", kDecls,
                                  more_decls, absl::StrJoin(ops, "\n"), "\n  }\n}\n"));
}

// Ops that are inserted before an op of the original.
struct New {
  size_t before;
  Lines ops;
};

Lines With(const std::vector<New>& edits, const Lines& original = Original()) {
  Lines ops;
  for (size_t i = 0; i <= original.size(); ++i) {
    for (const New& edit : edits) {
      if (edit.before == i) ops.insert(ops.end(), edit.ops.begin(), edit.ops.end());
    }
    if (i < original.size()) ops.push_back(original[i]);
  }
  return ops;
}

const CertificateClaim kMeans = {2, Setting::Reduction::kMean};

// "": it has a certificate, which the checker accepts; else why not.
std::string Why(const Lines& result, const std::string& more_decls = "",
                const CertificateClaim& claim = kMeans, const Lines& original = Original()) {
  const std::string before = Bytes(original), after = Bytes(result, more_decls);
  const auto certificate = MakeCertificate({before, after, "", ""}, claim);
  if (!certificate.ok()) return std::string(certificate.status().message());
  checker::Check({certificate->claim, certificate->proof, before, after, "", ""});
  return "";
}

std::string Wait(const std::string& var) {
  return absl::StrCat("Out=[", var, "] = c_wait_compute(X=[", var, "]) {ring_id=0}");
}
std::string Join(const std::string& var) {
  return absl::StrCat("Out=[", var, "] = c_wait_comm(X=[", var, "]) {ring_id=0}");
}
std::string Mean(const std::string& var) {
  return absl::StrCat("Out=[", var, "] = c_allreduce_avg(X=[", var, "]) {ring_id=0}");
}
std::string Sum(const std::string& var) {
  return absl::StrCat("Out=[", var, "] = c_allreduce_sum(X=[", var, "]) {ring_id=0}");
}
std::string Half(const std::string& var) {
  return absl::StrCat("Out=[", var, "] = scale(X=[", var, "]) {scale=0.5}");
}
// The reduction of b@GRAD and the end of both, for tests of w@GRAD.
const New kOfB = {6, {Wait("b@GRAD"), Mean("b@GRAD")}};

TEST(Certificate, MeansSumsAndDivisionsFollow) {
  EXPECT_EQ(Why(With({kOfB, {7, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}})), "");
  EXPECT_EQ(Why(With({{4, {Half("loss@GRAD")}},
                      {6, {Wait("b@GRAD"), Sum("b@GRAD")}},
                      {7, {Wait("w@GRAD"), Sum("w@GRAD"), Join("w@GRAD")}}})),
            "");
  EXPECT_EQ(Why(With({kOfB, {7, {Wait("w@GRAD"), Sum("w@GRAD"), Join("w@GRAD"), Half("w@GRAD")}}})),
            "");
  const CertificateClaim sums = {2, Setting::Reduction::kSum};
  EXPECT_EQ(
      Why(With({{7, {Wait("w@GRAD"), Sum("b@GRAD"), Sum("w@GRAD"), Join("w@GRAD")}}}), "", sums),
      "");
}

TEST(Certificate, EveryGradientIsReducedOnceAndByTheClaim) {
  EXPECT_EQ(Why(With({{7, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}})),
            "the gradient b@GRAD is not reduced");
  EXPECT_THAT(
      Why(With({kOfB, {7, {Wait("w@GRAD"), Mean("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}})),
      HasSubstr("w@GRAD is reduced twice"));
  EXPECT_THAT(Why(With({kOfB, {7, {Wait("w@GRAD"), Sum("w@GRAD"), Join("w@GRAD")}}})),
              HasSubstr("(sgd): it reads w@GRAD, which does not have the value"));
  EXPECT_THAT(Why(With({{4, {Half("loss@GRAD")}}, kOfB})),
              HasSubstr("b@GRAD is divided by n or reduced already"));
  EXPECT_THAT(Why(With({{7, {Wait("h@GRAD"), Mean("h@GRAD")}}})),
              HasSubstr("h@GRAD is no gradient of a parameter"));
}

TEST(Certificate, GradientsAreReducedBetweenTheirLastWriteAndTheirUse) {
  EXPECT_THAT(Why(With({kOfB, {8, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}})),
              HasSubstr("an op uses w@GRAD before its reduction"));
  EXPECT_THAT(Why(With({{5, {Wait("b@GRAD"), Mean("b@GRAD")}}})),
              HasSubstr("b@GRAD is no gradient"));
  Lines original = Original();
  original.insert(original.begin() + 7,
                  "Out=[w@GRAD] = sum(X=[w@GRAD]) role=backward vars=[w, w@GRAD]");
  EXPECT_THAT(Why(With({kOfB, {7, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}}, original), "",
                  kMeans, original),
              HasSubstr("it writes the gradient w@GRAD again"));
}

TEST(Certificate, DivisionsAreByTheNumberOfRanks) {
  const auto with_scale = [](const std::string& attrs, const CertificateClaim& claim) {
    return Why(With({{4, {absl::StrCat("Out=[loss@GRAD] = scale(X=[loss@GRAD]) {", attrs, "}")}},
                     {7, {Wait("w@GRAD"), Sum("b@GRAD"), Sum("w@GRAD"), Join("w@GRAD")}}}),
               "", claim);
  };
  EXPECT_EQ(with_scale("scale=0.5", kMeans), "");
  EXPECT_EQ(with_scale("scale=0.33333334", {3, Setting::Reduction::kMean}), "");
  for (const char* attrs : {"scale=0.25", "scale=0.5, bias=1.0", "scale=0.5, nranks=3",
                            "scale=0.5, per_rank=true", "bias=0.0"}) {
    EXPECT_NE(with_scale(attrs, kMeans), "") << attrs;
  }
  EXPECT_NE(with_scale("scale=0.5", {3, Setting::Reduction::kMean}), "");
  EXPECT_NE(with_scale("scale=0.5", {{}, Setting::Reduction::kMean}), "");
  EXPECT_NE(with_scale("scale=0.5", {2, Setting::Reduction::kSum}), "");
}

TEST(Certificate, DividedValuesPassLinearOpsOnly) {
  Lines original = Original();
  original[4] = "Out=[k@GRAD] = expand(X=[loss@GRAD]) role=backward";
  const std::vector<New> edits = {
      {4, {Half("loss@GRAD")}},
      {7, {Wait("w@GRAD"), Sum("b@GRAD"), Sum("w@GRAD"), Join("w@GRAD")}}};
  EXPECT_THAT(Why(With(edits, original), "", kMeans, original),
              HasSubstr("op 5 (expand): it reads a value / n, and is not known to be linear"));
  original[4] = "X@GRAD=[k@GRAD] = mean_grad(Out@GRAD=[loss@GRAD], X=[loss@GRAD]) role=backward";
  EXPECT_THAT(Why(With(edits, original), "", kMeans, original),
              HasSubstr("it reads loss@GRAD, which is divided by n"));
  original[4] = "X@GRAD=[k@GRAD] = mean_grad_grad(Out@GRAD=[loss@GRAD], X=[k]) role=backward";
  EXPECT_THAT(Why(With(edits, original), "", kMeans, original),
              HasSubstr("not known to be linear"));
}

TEST(Certificate, StreamsAreOrdered) {
  EXPECT_THAT(Why(With({kOfB, {7, {Mean("w@GRAD"), Join("w@GRAD")}}})),
              HasSubstr("nothing orders its access to w@GRAD after an earlier one"));
  EXPECT_THAT(Why(With({kOfB, {7, {Wait("w@GRAD"), Mean("w@GRAD")}}})),
              HasSubstr("op 11 (sgd): nothing orders its access to w@GRAD"));
  // The wait of another ring.
  EXPECT_THAT(Why(With({kOfB,
                        {7,
                         {Wait("w@GRAD"), Mean("w@GRAD"),
                          "Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) {ring_id=1}"}}})),
              HasSubstr("nothing orders its access to w@GRAD"));
  // What is never used, is waited for all the same.
  Lines original = Original();
  original.pop_back();
  EXPECT_EQ(Why(With({{7, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}},
                      {8, {Wait("b@GRAD"), Mean("b@GRAD")}}},
                     original),
                "", kMeans, original),
            "the program ends while communication goes on");
}

constexpr char kBuffer[] = "    var fused : fp32[128]\n";
std::string Coalesce(const std::string& parts, const std::string& attrs = "align_size=256") {
  return absl::StrCat("FusedOutput=[fused], Output=[", parts, "] = coalesce_tensor(Input=[", parts,
                      "]) {dtype=5, copy_data=false, use_align=true, ", attrs, "}");
}

TEST(Certificate, BuffersHoldTheirParts) {
  const auto in_buffer = [](size_t at, const std::string& coalesce,
                            const std::string& decl = kBuffer) {
    return Why(With({{at, {coalesce}}, {7, {Wait("fused"), Mean("fused"), Join("fused")}}}), decl);
  };
  EXPECT_EQ(in_buffer(4, Coalesce("w@GRAD, b@GRAD")), "");
  // Made after a part is written.
  EXPECT_THAT(in_buffer(6, Coalesce("w@GRAD, b@GRAD")), HasSubstr("b@GRAD holds no current value"));
  EXPECT_THAT(in_buffer(4, Coalesce("w@GRAD, w@GRAD")), HasSubstr("w@GRAD is in a buffer already"));
  EXPECT_THAT(in_buffer(4, Coalesce("w@GRAD")), HasSubstr("FusedOutput is not declared with 64"));
  EXPECT_THAT(in_buffer(4, Coalesce("w@GRAD, b@GRAD"), "    var fused : fp32[20]\n"),
              HasSubstr("FusedOutput is not declared with 128 elements"));
  EXPECT_THAT(in_buffer(4, Coalesce("w@GRAD, b@GRAD", "concated_shapes=longs[4, 4, 5]")),
              HasSubstr("its attributes have other shapes"));
  EXPECT_THAT(in_buffer(4, Coalesce("w@GRAD, b@GRAD", "set_constant=true")),
              HasSubstr("attribute set_constant has another type or value"));
  EXPECT_THAT(in_buffer(4, Coalesce("w@GRAD, b")), HasSubstr("b is no tensor of a known size"));
  EXPECT_THAT(in_buffer(4, Coalesce("w@GRAD, h@GRAD")),
              HasSubstr("h@GRAD is no tensor of a known"));
}

TEST(Certificate, CastsGoToAnotherTypeAndBack) {
  const auto of_w = [](const Lines& ops) {
    return Why(With({kOfB, {7, ops}}), "    var half : fp16[4, 4]\n    var other : fp16[4, 4]\n");
  };
  const std::string there = "Out=[half] = cast(X=[w@GRAD]) {in_dtype=5, out_dtype=4}";
  const std::string back = "Out=[w@GRAD] = cast(X=[half]) {in_dtype=4, out_dtype=5}";
  EXPECT_EQ(of_w({there, Wait("half"), Mean("half"), Join("half"), back}), "");
  EXPECT_EQ(of_w({there, Wait("half"), Sum("half"), Join("half"), back, Half("w@GRAD")}), "");
  EXPECT_THAT(of_w({there, Wait("half"), Mean("half"), Join("half")}),
              HasSubstr("(sgd): it reads w@GRAD, which does not have the value"));
  EXPECT_THAT(of_w({there, Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD"), back}),
              HasSubstr("half holds no current value"));
  EXPECT_THAT(of_w({"Out=[b@GRAD] = cast(X=[w@GRAD]) {in_dtype=5, out_dtype=5}"}),
              HasSubstr("b@GRAD cannot hold w@GRAD"));
}

TEST(Certificate, GatheredPartsAreAllThere) {
  const auto of_w = [](const std::string& parts, const std::string& nranks = "2") {
    return Why(
        With(
            {kOfB,
             {7,
              {Wait("w@GRAD"),
               absl::StrCat("Out=[all] = c_allgather(X=[w@GRAD]) {ring_id=0, nranks=", nranks, "}"),
               Join("all"), "Out=[p, q] = split(X=[all]) {axis=0, num=2}",
               absl::StrCat("Out=[w@GRAD] = sum(X=[", parts, "])"), Half("w@GRAD")}}}),
        "    var all : fp32[8, 4]\n    var p : fp32[4, 4]\n    var q : fp32[4, 4]\n");
  };
  EXPECT_EQ(of_w("p, q"), "");
  EXPECT_EQ(of_w("q, p"), "");
  EXPECT_THAT(of_w("p, p"), HasSubstr("p is not the value of another rank"));
  EXPECT_THAT(of_w("p"), HasSubstr("expected a part for each rank"));
  EXPECT_THAT(of_w("p, w@GRAD"), HasSubstr("w@GRAD is not the value of another rank"));
  EXPECT_THAT(of_w("p, q", "3"), HasSubstr("attribute nranks has another type or value"));
}

std::vector<New> Right() { return {kOfB, {7, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}}; }

TEST(Certificate, OpsOfTheOriginalStay) {
  const Lines right = With(Right());
  for (size_t i = 0; i < right.size(); ++i) {
    Lines without = right;
    without.erase(without.begin() + i);
    EXPECT_NE(Why(without), "") << right[i];
  }
  for (size_t i = 0; i + 1 < Original().size(); ++i) {
    Lines original = Original();
    std::swap(original[i], original[i + 1]);
    EXPECT_NE(Why(With(Right(), original)), "") << original[i];
  }
  Lines other = right;
  other[0] = "Out=[h] = mul(X=[x], Y=[w]) {x_num_col_dims=2}";
  EXPECT_NE(Why(other), "");
}

TEST(Certificate, NewOpsHaveARule) {
  const auto with = [](const std::string& op) {
    std::vector<New> edits = Right();
    edits.push_back({9, {op}});
    return Why(With(edits), "    var t : fp32[4, 4]\n");
  };
  EXPECT_THAT(with("Out=[t] = relu(X=[w])"), HasSubstr("no rule inserts such an op"));
  EXPECT_THAT(with("Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) {ring_id=0, group_ranks=ints[0]}"),
              HasSubstr("no rule allows attribute group_ranks"));
  EXPECT_THAT(with("Out=[b@GRAD] = scale(X=[b@GRAD]) role=optimize {scale=0.5}"),
              HasSubstr("attribute op_role: expected backward"));
  EXPECT_THAT(with("Out=[b@GRAD] = c_wait_comm(X=[w@GRAD]) {ring_id=0}"),
              HasSubstr("expected X and the same Out"));
  // A parameter is equal on all ranks, so its broadcast changes nothing.
  EXPECT_EQ(
      Why(With({kOfB,
                {7, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}},
                {9, {Wait("w"), "Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0}", Join("w")}}})),
      "");
  EXPECT_THAT(with("Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=1}"),
              HasSubstr("attribute root has another type or value"));
}

// Readers of the format differ in what they make of values in fields of another type.
TEST(Certificate, AttributesAndSlotsHaveOneMeaning) {
  const auto with_mean = [](const std::string& op) {
    return Why(With({kOfB, {7, {Wait("w@GRAD"), op, Join("w@GRAD")}}}));
  };
  EXPECT_EQ(with_mean("Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {use_calc_stream=true}"), "");
  EXPECT_THAT(with_mean("Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {use_calc_stream=1}"),
              HasSubstr("attribute use_calc_stream has another type"));
  EXPECT_THAT(with_mean("Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0.0}"),
              HasSubstr("attribute ring_id has another type"));
  EXPECT_THAT(with_mean("Out=[w@GRAD] = c_allreduce_avg(X=[], x=[w@GRAD]) {ring_id=0}"),
              HasSubstr("slot X is there twice"));
  EXPECT_THAT(with_mean("Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD], Cond=[b]) {ring_id=0}"),
              HasSubstr("it has another variable"));
}

// Which of the two counts depends on the order, and kept ops may have their fields in another one.
TEST(Certificate, NoAttributeOrSlotOfAnOpIsThereTwice) {
  for (const auto& [op, why] : std::vector<std::pair<std::string, std::string>>{
           {"Out=[k] = scale(X=[h]) {scale=0.5, scale=3.0}", "attribute scale is there twice"},
           {"Out=[k] = scale(X=[h], X=[x]) {scale=0.5}", "input slot X is there twice"},
           {"Out=[k], Out=[h] = scale(X=[h]) {scale=0.5}", "output slot Out is there twice"}}) {
    Lines original = Original();
    original.insert(original.begin() + 1, op);
    Lines result = With({{7, {Wait("w@GRAD"), Mean("w@GRAD"), Mean("b@GRAD"), Join("w@GRAD")}}});
    result.insert(result.begin() + 1, op);
    EXPECT_THAT(Why(result, "", kMeans, original), HasSubstr("op 1 (scale): " + why));
  }
}

// As Paddle writes mkldnn_data_type of reshape2.
TEST(Certificate, AnAttributeMayBeThereTwiceWithOneValue) {
  const std::string op = "Out=[k] = scale(X=[h]) {scale=0.5, scale=0.5}";
  Lines original = Original();
  original.insert(original.begin() + 1, op);
  Lines result = With({{7, {Wait("w@GRAD"), Mean("w@GRAD"), Mean("b@GRAD"), Join("w@GRAD")}}});
  result.insert(result.begin() + 1, op);
  EXPECT_EQ(Why(result, "", kMeans, original), "");
}

TEST(Certificate, DividedValuesAreFloats) {
  Lines original = Original();
  original[6] =
      "Y@GRAD=[raw] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[w]) role=backward\n"
      "Out=[whole] = cast(X=[raw]) role=backward {in_dtype=5, out_dtype=3}\n"
      "Out=[w@GRAD] = cast(X=[whole]) role=backward vars=[w, w@GRAD] {in_dtype=3, out_dtype=5}";
  const auto why = [&](const std::string& type, const std::vector<New>& edits) {
    const std::string decls =
        absl::StrCat("    var raw : fp32[4, 4]\n    var whole : ", type, "[4, 4]\n");
    const auto certificate = MakeCertificate(
        {Bytes(original, decls), Bytes(With(edits, original), decls), "", ""}, kMeans);
    return std::string(certificate.status().message());
  };
  const std::vector<New> divides = {
      {4, {Half("loss@GRAD")}},
      {7, {Wait("w@GRAD"), Sum("b@GRAD"), Sum("w@GRAD"), Join("w@GRAD")}}};
  EXPECT_EQ(why("fp64", divides), "");
  EXPECT_THAT(why("int64", divides),
              HasSubstr("(cast): whole, which is divided by n, is not declared as floats"));
  // Whole numbers of which the mean is taken are right.
  EXPECT_EQ(why("int64", {{7, {Wait("w@GRAD"), Mean("b@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}}),
            "");
}

// Of an original with one more op.
std::string WhyWithOp(const std::string& op, const std::string& version = "") {
  Lines original = Original();
  original.insert(original.begin() + 1, op);
  Lines result = With({{7, {Wait("w@GRAD"), Mean("w@GRAD"), Mean("b@GRAD"), Join("w@GRAD")}}});
  result.insert(result.begin() + 1, op);
  const std::string decls = "    var other : fp32[4]\n";
  const auto certificate = MakeCertificate(
      {Bytes(original, decls, version), Bytes(result, decls, version), "", ""}, kMeans);
  return std::string(certificate.status().message());
}

TEST(Certificate, OpsOfTheOriginalNeitherCommunicateNorShareMemory) {
  for (const char* type :
       {"as_strided", "mp_allreduce_sum", "ps_pull", "rnn_memory_helper", "share_buffer",
        "share_data", "tensor_unfold", "view_dtype", "view_shape"}) {
    EXPECT_THAT(WhyWithOp(absl::StrCat("Out=[other] = ", type, "(X=[b])")),
                HasSubstr("no certificate for originals that communicate or share memory"));
  }
  EXPECT_EQ(WhyWithOp("Out=[other] = relu(X=[b])"), "");
  // In Paddle 1, the printed value is no copy.
  const std::string print = "Out=[other] = print(In=[b])";
  EXPECT_EQ(WhyWithOp(print, " version=2000000"), "");
  EXPECT_THAT(WhyWithOp(print, " version=1008005"), HasSubstr("or share memory"));
  EXPECT_THAT(WhyWithOp(print), HasSubstr("or share memory"));
  EXPECT_EQ(WhyWithOp("Out=[b] = print(In=[b])", " version=1008005"), "");
}

TEST(Certificate, OpsDrawWithoutAttributeSeed) {
  for (const char* type : {"dropout", "gumbel_softmax", "rrelu", "randint", "rnn"}) {
    EXPECT_EQ(WhyWithOp(absl::StrCat("Out=[b] = ", type, "(X=[b])")), "b is no state of all ranks")
        << type;
  }
  EXPECT_EQ(WhyWithOp("Out=[b] = relu(X=[b])"), "");
}

TEST(Certificate, SettingsSayWhatTheClaimSays) {
  const auto why = [](const std::string& setting) {
    std::string after = Bytes(With(Right()));
    // Field 1001, of wire type 2.
    absl::StrAppend(&after, "\xca\x3e", std::string(1, static_cast<char>(setting.size())), setting);
    return std::string(
        MakeCertificate({Bytes(Original()), after, "", ""}, kMeans).status().message());
  };
  EXPECT_EQ(why(R"({"nranks":2,"feeds":{"the x":"axis:0"}})"), "");
  EXPECT_THAT(why(R"({"nranks":3})"), HasSubstr(R"("nranks":: expected 2)"));
  EXPECT_THAT(why(R"({"nranks":2,"nranks":3})"), HasSubstr(R"("nranks":: expected 2)"));
  // Blanks do not hide anything.
  EXPECT_EQ(why("{\"nranks\" :\n 2}"), "");
  for (const char* setting : {R"({"nranks" :3})", R"({"nranks": 3})", "{\"nranks\"\n:3}"}) {
    EXPECT_THAT(why(setting), HasSubstr("setting of the result: ")) << setting;
  }
  EXPECT_THAT(why("{\"groups\"\t:[]}"), HasSubstr("no rule "));
  EXPECT_THAT(why(R"({"shares":{}})"), HasSubstr("expected shares"));
  EXPECT_THAT(why(R"({"averaging":{"period":1}})"), HasSubstr("op_role: expected optimize"));
}

// A certificate is for averages of parameters if the setting says so.
TEST(Certificate, ParametersAreAveragedOnASchedule) {
  const auto certificate_of = [](const std::string& period) {
    Lines ops = Original();
    for (const char* param : {"w", "b"}) {
      ops.push_back(absl::StrCat("Out=[", param, "] = c_allreduce_avg(X=[", param,
                                 "]) role=optimize {ring_id=0, use_calc_stream=true}"));
    }
    const std::string setting = absl::StrCat(R"({"averaging":{"period":)", period, "}}");
    const std::string after = absl::StrCat(
        Bytes(ops), "\xca\x3e", std::string(1, static_cast<char>(setting.size())), setting);
    return MakeCertificate({Bytes(Original()), after, "", ""}, kMeans);
  };
  const auto certificate = certificate_of("1");
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_THAT(certificate->claim, HasSubstr("\ngradients: own\n"));
  EXPECT_THAT(certificate->claim, HasSubstr("  - always, of 2 states p:\n    p = mean(p)\n"));
  EXPECT_THAT(certificate_of("2").status(),
              IsFailedPrecondition("states change always, and by the setting if (s mod 2) = 0"));
}

// What the result leaves out, and which ops it runs on shares, is found by comparing the programs.
TEST(Certificate, RanksUpdateTheirPartsOfStates) {
  const auto program = [](const Lines& ops, bool is_result, const char* setting = "") {
    std::string decls = kDecls;
    if (is_result) {
      decls = absl::StrReplaceAll(decls, {{"w : fp32[4, 4] persistable", "w : fp32[4, 4]"},
                                          {"b : fp32[4] persistable", "b : fp32[4]"}});
      absl::StrAppend(&decls, "    var ws : fp32[10] persistable\n    var gs : fp32[10]\n",
                      "    var all : fp32[20]\n    var sent : fp32[20]\n");
    }
    return BytesOfText(absl::StrCat("program {\n  block 0 parent=-1 {\n", decls,
                                    absl::StrJoin(ops, "\n"), "\n  }\n", setting, "}\n"));
  };
  const auto packed = [](const char* a, const char* b, const char* copies = "false") {
    return absl::StrCat("FusedOutput=[all], Output=[", a, ", ", b, "] = coalesce_tensor(Input=[", a,
                        ", ", b, "]) {align_size=4, copy_data=", copies, ", dtype=5}");
  };
  const std::string gathered = "Out=[all] = c_allgather(X=[ws]) {nranks=2, use_calc_stream=true}";
  const Lines fills = {"Out=[w] = gaussian_random()", "Out=[b] = gaussian_random()"};
  const auto why = [&](const std::string& update, const std::string& fused) {
    Lines ops(Original().begin(), Original().begin() + 7);
    ops.insert(ops.begin(), {packed("w", "b"), gathered});
    // Another buffer, for gradients.
    ops.push_back(absl::StrReplaceAll(fused, {{"[all]", "[sent]"}, {"false", "true"}}));
    ops.push_back("Out=[gs] = c_reducescatter(X=[sent]) {nranks=2, use_calc_stream=true}");
    ops.push_back("Out=[gs] = scale(X=[gs]) {scale=0.5}");
    ops.push_back(update);
    Lines starts = fills;
    starts.insert(
        starts.end(),
        {packed("w", "b", "true"), "Out=[sent] = alltoall(X=[all]) {use_calc_stream=true}",
         "Out=[ws] = slice(Input=[sent]) {axes=ints[0], ends=ints[10], starts=ints[0]}"});
    const std::string before = program(Original(), false), startup = program(fills, false),
                      new_startup = program(starts, true),
                      after = program(ops, true,
                                      "  setting {\"nranks\":2,\"shares\":{\"ws\":[[\"w\",[4,4]],"
                                      "[\"b\",[4]]]}}\n");
    const auto certificate = MakeCertificate({before, after, startup, new_startup}, kMeans);
    if (!certificate.ok()) return std::string(certificate.status().message());
    EXPECT_THAT(certificate->proof, HasSubstr("+3\n-2\n+1\nstartup\n"));
    EXPECT_THAT(certificate->claim, HasSubstr("in order of ranks: ws = w b\n"));
    checker::Check({certificate->claim, certificate->proof, before, after, startup, new_startup});
    return std::string();
  };
  const std::string update =
      "ParamOut=[ws] = sgd(Grad=[gs], LearningRate=[lr], Param=[ws]) role=optimize";
  EXPECT_EQ(why(update, packed("w@GRAD", "b@GRAD")), "");
  EXPECT_THAT(why(update, packed("b@GRAD", "w@GRAD")),
              HasSubstr("no op that is left out does the"));
  EXPECT_THAT(why(absl::StrReplaceAll(update, {{"sgd", "lamb"}}), packed("w@GRAD", "b@GRAD")),
              HasSubstr("it needs whole tensors, and no rank has all of w@GRAD"));
}

TEST(Certificate, DeclarationsStay) {
  const std::string before = Bytes(Original());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"var w : fp32[4, 4]", "var w : fp32[4, 5]"},
           {"var w : fp32[4, 4] persistable", "var w : fp32[4, 4]"},
           {"var h : fp32[-1, 4]", "var h : fp64[-1, 4]"}}) {
    const auto program = ParseProgramText(
        absl::StrReplaceAll(absl::StrCat("program {\n  block 0 parent=-1 {\n", kDecls,
                                         absl::StrJoin(With(Right()), "\n"), "\n  }\n}\n"),
                            {{from, to}}));
    ASSERT_TRUE(program.ok()) << program.status();
    const auto certificate =
        MakeCertificate({before, program->ToProto().SerializeAsString(), "", ""}, kMeans);
    EXPECT_THAT(certificate.status(), IsFailedPrecondition("is not declared as in the original"));
  }
  EXPECT_THAT(Why(With(Right()), "    var n : fp32[1] persistable\n"),
              HasSubstr("the new variable n is a state, or no tensor"));
}

// Whoever makes names of one hash does not make the checker slow.
TEST(Certificate, NamesOfOneHashAreBounded) {
  const auto status = [](const Lines& names) {
    std::string decls;
    for (const std::string& name : names) absl::StrAppend(&decls, "    var ", name, " : fp32[1]\n");
    return MakeCertificate({Bytes(Original(), decls), Bytes(With(Right()), decls), "", ""}, kMeans)
        .status();
  };
  constexpr size_t kNames = 70;
  std::unordered_set<std::string_view> room;
  room.reserve(2 * (kNames + std::count(kDecls, kDecls + sizeof(kDecls), ':')));
  Lines any, of_one_hash;
  for (int i = 0; of_one_hash.size() < kNames; ++i) {
    const std::string name = absl::StrCat("t", i);
    if (any.size() < kNames) any.push_back(name);
    if (room.bucket(name) == 0) of_one_hash.push_back(name);
  }
  WEFT_EXPECT_OK(status(any));
  EXPECT_THAT(status(of_one_hash), IsFailedPrecondition("too many names have one hash"));
}

// A block counts as all that it reads and may write.
TEST(Certificate, BlocksReadAndMayWriteWhatTheirOpsDo) {
  const auto why = [](const std::string& inner, const Lines& before_it) {
    const auto program = [&](const Lines& more) {
      Lines ops = With(more.empty() ? std::vector<New>() : Right());
      // After the reductions, before the updates.
      const auto at = std::find_if(ops.begin(), ops.end(), [](const std::string& op) {
        return absl::StrContains(op, "sgd");
      });
      Lines here = more;
      here.push_back("Out=[k] = conditional_block(Cond=[due], Input=[]) {sub_block=block(1)}");
      ops.insert(at, here.begin(), here.end());
      const auto parsed = ParseProgramText(absl::StrCat(
          "program {\n  block 0 parent=-1 {\n    var due : bool[1] persistable\n", kDecls,
          absl::StrJoin(ops, "\n"), "\n  }\n  block 1 parent=0 {\n", inner, "\n  }\n}\n"));
      EXPECT_TRUE(parsed.ok()) << parsed.status();
      return parsed->ToProto().SerializeAsString();
    };
    const auto certificate = MakeCertificate({program({}), program(before_it), "", ""}, kMeans);
    return std::string(certificate.status().message());
  };
  const Lines wait = {Join("w@GRAD")};
  EXPECT_EQ(why("Out=[k] = relu(X=[h])", wait), "");
  EXPECT_EQ(why("Out=[k] = relu(X=[h])", {Half("loss@GRAD")}), "");
  EXPECT_THAT(why("Out=[k] = relu(X=[loss@GRAD])", {Half("loss@GRAD")}),
              HasSubstr("(conditional_block): it reads a value / n"));
  EXPECT_THAT(why("Out=[loss@GRAD] = relu(X=[k])", {Half("loss@GRAD")}),
              HasSubstr("(conditional_block): it may leave loss@GRAD"));
  // What a block declares is its own.
  const std::string local = "    var t : fp32[-1, 4]\n";
  const std::string uses_it = "    Out=[t] = relu(X=[h])\n    Out=[k] = relu(X=[t])";
  EXPECT_EQ(why(local + uses_it, wait), "");
  EXPECT_THAT(why("    var t : fp32[4] persistable\n" + uses_it, wait),
              HasSubstr("block 1 has a state"));
  // A draw that each rank makes for itself.
  EXPECT_EQ(why("Out=[b] = dropout(X=[b]) {seed=0}", wait), "b is no state of all ranks");
  EXPECT_THAT(why("Out=[k] = c_allreduce_sum(X=[k]) {ring_id=0}", wait),
              HasSubstr("no certificate for originals that communicate"));
}

// If a block does not run, each rank keeps what it was fed.
TEST(Certificate, BlocksLeaveWhatComesFromOutside) {
  const auto why = [](const std::string& mark, const Lines& more) {
    const auto program = [&](const Lines& of_result) {
      Lines ops = With(of_result.empty() ? std::vector<New>() : Right());
      ops.insert(ops.begin(), "Out=[v] = conditional_block(Cond=[due]) {sub_block=block(1)}");
      ops.insert(ops.begin(), more.begin(), more.end());
      ops.push_back("Out=[mean] = relu(X=[v])");
      return BytesOfText(absl::StrCat(
          "program {\n  block 0 parent=-1 {\n    var due : bool[1] persistable\n    var v : "
          "fp32[4]",
          mark, "\n", kDecls, absl::StrJoin(ops, "\n"),
          "\n  }\n  block 1 parent=0 {\n    Out=[v] = fill_constant() {value=1.0}\n  }\n}\n"));
    };
    const auto certificate = MakeCertificate({program({}), program({"new"}), "", ""}, kMeans);
    EXPECT_TRUE(certificate.ok()) << certificate.status();
    const std::string before = "- states of which each rank has its own: ";
    const size_t at = certificate->claim.find(before) + before.size();
    return certificate->claim.substr(at, certificate->claim.find('\n', at) - at);
  };
  EXPECT_EQ(why("", {}), "none");
  EXPECT_EQ(why(" need_check_feed", {}), "mean");
  EXPECT_EQ(why("", {"Out=[loss] = mean(X=[v])"}), "mean");
  EXPECT_EQ(why(" need_check_feed", {"Out=[v] = fill_constant() {value=0.0}"}), "none");
}

TEST(Certificate, StatesThatDifferBetweenRanksAreNamed) {
  Lines original = Original();
  original.insert(original.begin() + 1, "Out=[mean] = reduce_mean(X=[h])");
  std::vector<New> edits = {{7, {Wait("b@GRAD"), Mean("b@GRAD")}},
                            {8, {Wait("w@GRAD"), Mean("w@GRAD"), Join("w@GRAD")}}};
  const std::string before = Bytes(original), after = Bytes(With(edits, original));
  const auto certificate = MakeCertificate({before, after, "", ""}, kMeans);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_THAT(certificate->claim, HasSubstr("- states of which each rank has its own: mean\n"));
  // The claim without them is wrong, whatever the proof says.
  try {
    checker::Check({certificate->claim,
                    absl::StrReplaceAll(certificate->proof, {{"own mean\n", ""}}), before, after,
                    "", ""});
    ADD_FAILURE() << "it is certified";
  } catch (const checker::Failure& failure) {
    EXPECT_EQ(failure.why, "mean may differ between ranks");
  }
}

// A claim that says none means none.
TEST(Certificate, NoStateOfItsOwnIsNamedNone) {
  for (const char* const name : {"none", "nones"}) {
    const std::string decls = absl::StrCat("    var ", name, " : fp32[4] persistable\n");
    Lines original = Original();
    original.push_back(absl::StrCat("Out=[", name, "] = dropout(X=[", name, "]) {seed=0}"));
    const auto certificate = MakeCertificate(
        {Bytes(original, decls), Bytes(With(Right(), original), decls), "", ""}, kMeans);
    if (std::string_view(name) == "nones") {
      WEFT_EXPECT_OK(certificate.status());
    } else {
      EXPECT_THAT(certificate.status(), IsFailedPrecondition("none is no state, or named none"));
    }
  }
}

TEST(Certificate, ClaimsAreComparedByteByByte) {
  const std::string before = Bytes(Original()), after = Bytes(With(Right()));
  const auto certificate = MakeCertificate({before, after, "", ""}, kMeans);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_LE(std::count(certificate->claim.begin(), certificate->claim.end(), '\n'), 40);
  for (size_t i = 0; i < certificate->claim.size(); ++i) {
    std::string claim = certificate->claim;
    claim[i] = claim[i] == '7' ? '8' : '7';
    try {
      checker::Check({claim, certificate->proof, before, after, "", ""});
    } catch (const checker::Failure&) {
      continue;
    }
    // These ops are right for any number of ranks.
    EXPECT_THAT(claim, HasSubstr("ranks: 7\n"));
  }
}

}  // namespace
}  // namespace weft::testing
