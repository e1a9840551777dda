#include "transpiler/passes/updates/optimizer_settings.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<OptimizerSettings> SettingsOf(const std::string& options) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> specs, ParseSpecs("o" + options));
  OptimizerOptions parsed;
  OptionBinder bind;
  parsed.Bind(bind);
  WEFT_RETURN_IF_ERROR(bind.Set(specs[0].options));
  return parsed.Resolve();
}

TEST(OptimizerSettings, DefaultsAreThoseOfSinga) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "{type=sgd,lr=0.1,weight_decay=0,momentum=0,dampening=0}"},
      {"{type=rmsprop}", "{type=rmsprop,lr=0.1,weight_decay=0,rho=0.9,epsilon=1e-08}"},
      {"{type=adagrad}", "{type=adagrad,lr=0.1,weight_decay=0,epsilon=1e-08}"},
      {"{type=adam}", "{type=adam,lr=0.1,weight_decay=0,epsilon=1e-08,beta_1=0.9,beta_2=0.999}"},
  };
  for (const auto& [options, expected] : cases) {
    WEFT_ASSERT_OK_AND_ASSIGN(const OptimizerSettings settings, SettingsOf(options));
    EXPECT_EQ(ToString(settings), expected);
  }
}

TEST(OptimizerSettings, TextReadsBackAsTheSettings) {
  for (const char* options :
       {"{type=sgd,lr=0.5,weight_decay=0.01,momentum=exp(0.9:2:0.5),dampening=0,nesterov=true}",
        "{type=rmsprop,lr=exp(0.5:10:0.9:staircase),weight_decay=0,rho=0.8,epsilon=0.001}",
        "{type=adam,lr=0.5,weight_decay=0,epsilon=exp(1e-08:1:2),beta_1=0.8,beta_2=0.99}"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const OptimizerSettings settings, SettingsOf(options));
    EXPECT_EQ(ToString(settings), options);
  }
}

// Returns the number of cases.
int ExpectAccepted(const std::string& file_name) {
  std::ifstream file("tests/data/optimizers/" + file_name);
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto json = nlohmann::json::parse(line);
    const auto settings = SettingsOf(json["options"].get<std::string>());
    EXPECT_EQ(settings.ok(), json["accepted"].get<bool>()) << json["id"] << settings.status();
  }
  return cases;
}

TEST(OptimizerSettings, AcceptedOptionsAreThoseOfSinga) {
  EXPECT_EQ(ExpectAccepted("singa_options.jsonl"), 34);
}

TEST(OptimizerSettings, WhatMegEngineRefusesIsRefused) {
  EXPECT_EQ(ExpectAccepted("megengine_options.jsonl"), 8);
}

TEST(OptimizerSettings, ContradictionsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{type=adam,momentum=0.9}",
       "option momentum: type adam does not read it; it reads lr, weight_decay, epsilon, beta_1, "
       "beta_2"},
      {"{type=sgd,epsilon=1}",
       "option epsilon: type sgd does not read it; it reads lr, weight_decay, momentum, dampening, "
       "nesterov"},
      {"{type=adagrad,rho=0.9}", "option rho: type adagrad does not read it"},
      {"{type=rmsprop,beta_2=0.9}", "option beta_2: type rmsprop does not read it"},
      {"{type=adam,nesterov=false}", "option nesterov: type adam does not read it"},
      {"{nesterov=true}", "option nesterov: expected momentum > 0 with it, found momentum 0"},
      {"{momentum=0.9,dampening=0.5,nesterov=true}",
       "option nesterov: expected dampening 0 with it, found dampening 0.5"},
      {"{type=lion}", "option type: expected sgd|rmsprop|adagrad|adam|adamw, found 'lion'"},
      {"{rate=1}", "unknown option rate; it has: type, lr, weight_decay, momentum"},
      {"{type=adam,beta_1=1}",
       "option beta_1: expected a number >= 0 and < 1, or exp(INIT:STEPS:RATE[:staircase])"},
      {"{type=rmsprop,rho=1.5}", "option rho: expected a number >= 0 and <= 1"},
      {"{nesterov=maybe}", "option nesterov: expected true or false, found 'maybe'"},
  };
  for (const auto& [options, message] : cases) {
    EXPECT_THAT(SettingsOf(options).status(), StatusIs(kInvalid, HasSubstr(message)));
  }
}

}  // namespace
}  // namespace weft::testing
