// What the examples of rules have in common. Program text in pieces, to be put together by the
// compiler:
//
//   WEFT_EXAMPLE_BEGIN R"(    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {use_calc_stream=true}
//   )" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END
#ifndef WEFT_TRANSPILER_VERIFY_EXAMPLE_PROGRAM_H_
#define WEFT_TRANSPILER_VERIFY_EXAMPLE_PROGRAM_H_

// One parameter, and its gradient of the samples of a rank.
#define WEFT_EXAMPLE_VARS                          \
  "program {\n"                                    \
  "  block 0 parent=-1 {\n"                        \
  "    var x : fp32[4, 1] need_check_feed\n"       \
  "    var w : fp32[1, 1] parameter persistable\n" \
  "    var lr : fp32[1] persistable\n"             \
  "    var y@GRAD : fp32[4, 1]\n"                  \
  "    var w@GRAD : fp32[1, 1]\n"
#define WEFT_EXAMPLE_LOSS_GRAD                                                          \
  "    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 1], dtype=5, " \
  "value=1.0}\n"
#define WEFT_EXAMPLE_BACKWARD \
  "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n"
#define WEFT_EXAMPLE_BEGIN WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
#define WEFT_EXAMPLE_UPDATE \
  "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n"
#define WEFT_EXAMPLE_END \
  "  }\n"                \
  "}"

#endif  // WEFT_TRANSPILER_VERIFY_EXAMPLE_PROGRAM_H_
