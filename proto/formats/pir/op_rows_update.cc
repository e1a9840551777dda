// Rows of ops that update parameters, and of what optimizers keep besides.
#include "proto/formats/pir/op_rows.h"

namespace weft::pir {
namespace {

constexpr absl::string_view kAdam =
    "param:Param grad:Grad learning_rate:LearningRate moment1:Moment1 moment2:Moment2 "
    "moment2_max:Moment2Max? beta1_pow:Beta1Pow beta2_pow:Beta2Pow master_param:MasterParam? "
    "skip_update:SkipUpdate? beta1:@beta1/FLOAT beta2:@beta2/FLOAT epsilon:@epsilon/FLOAT";
constexpr absl::string_view kAdamResults =
    "param_out:ParamOut=param moment1_out:Moment1Out=moment1 moment2_out:Moment2Out=moment2 "
    "moment2_max_out:Moment2MaxOut=moment2_max beta1_pow_out:Beta1PowOut=beta1_pow "
    "beta2_pow_out:Beta2PowOut=beta2_pow master_param_out:MasterParamOut=master_param";

constexpr OpRow kRows[] = {
    {"1.sgd_", "sgd", "param:Param learning_rate:LearningRate grad:Grad master_param:MasterParam?",
     "param_out:ParamOut=param master_param_out:MasterParamOut=master_param", ""},
    {"1.momentum_", "momentum",
     "param:Param grad:Grad velocity:Velocity learning_rate:LearningRate "
     "master_param:MasterParam?",
     "param_out:ParamOut=param velocity_out:VelocityOut=velocity "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.adam_", "adam", kAdam, kAdamResults, ""},
    {"1.adamw_", "adamw", kAdam, kAdamResults, ""},
    {"1.adagrad_", "adagrad",
     "param:Param grad:Grad moment:Moment learning_rate:LearningRate master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:MomentOut=moment "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.adadelta_", "adadelta",
     "param:Param grad:Grad avg_squared_grad:AvgSquaredGrad avg_squared_update:AvgSquaredUpdate "
     "learning_rate:LearningRate master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:AvgSquaredGradOut=avg_squared_grad "
     "inf_norm_out:AvgSquaredUpdateOut=avg_squared_update "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.rmsprop_", "rmsprop",
     "param:Param mean_square:MeanSquare grad:Grad moment:Moment learning_rate:LearningRate "
     "mean_grad:MeanGrad? master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:MomentOut=moment "
     "mean_square_out:MeanSquareOut=mean_square "
     "mean_grad_out:MeanGradOut=mean_grad master_param_outs:MasterParamOut=master_param",
     ""},
    {"1.adamax_", "adamax",
     "param:Param grad:Grad learning_rate:LearningRate moment:Moment inf_norm:InfNorm "
     "beta1_pow:Beta1Pow master_param:MasterParam?",
     "param_out:ParamOut=param moment_out:MomentOut=moment inf_norm_out:InfNormOut=inf_norm "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.lamb_", "lamb",
     "param:Param grad:Grad learning_rate:LearningRate moment1:Moment1 moment2:Moment2 "
     "beta1_pow:Beta1Pow beta2_pow:Beta2Pow master_param:MasterParam? skip_update:SkipUpdate?",
     "param_out:ParamOut=param moment1_out:Moment1Out=moment1 moment2_out:Moment2Out=moment2 "
     "beta1_pow_out:Beta1PowOut=beta1_pow beta2_pow_out:Beta2PowOut=beta2_pow "
     "master_param_outs:MasterParamOut=master_param",
     ""},
    {"1.nadam_", "nadam",
     "param:Param grad:Grad learning_rate:LearningRate momentum_decay_pow:MomentumDecayPow "
     "beta2_pow:Beta2Pow mu_product:MuProduct moment1:Moment1 moment2:Moment2 "
     "master_param:MasterParam?",
     "param_out:ParamOut=param momentum_decay_pow_out:MomentumDecayPowOut=momentum_decay_pow "
     "beta2_pow_out:Beta2PowOut=beta2_pow mu_product_out:MuProductOut=mu_product "
     "moment1_out:Moment1Out=moment1 moment2_out:Moment2Out=moment2 "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.radam_", "radam",
     "param:Param grad:Grad learning_rate:LearningRate beta1_pow:Beta1Pow beta2_pow:Beta2Pow "
     "rho:Rho moment1:Moment1 moment2:Moment2 master_param:MasterParam?",
     "param_out:ParamOut=param beta1_pow_out:Beta1PowOut=beta1_pow "
     "beta2_pow_out:Beta2PowOut=beta2_pow rho_out:RhoOut=rho moment1_out:Moment1Out=moment1 "
     "moment2_out:Moment2Out=moment2 master_param_out:MasterParamOut=master_param",
     ""},
    {"1.asgd_", "asgd",
     "param:Param grad:Grad learning_rate:LearningRate d:D y:Y n:N master_param:MasterParam?",
     "param_out:ParamOut=param d_out:DOut=d y_out:YOut=y "
     "master_param_out:MasterParamOut=master_param",
     ""},
    {"1.rprop_", "rprop",
     "param:Param grad:Grad prev:Prev learning_rate:LearningRate master_param:MasterParam? "
     "learning_rate_range:LearningRateRange etas:Etas",
     "param_out:ParamOut=param prev_out:PrevOut=prev "
     "learning_rate_out:LearningRateOut=learning_rate "
     "master_param_out:MasterParamOut=master_param",
     ""},
    // It takes a list of parameters.
    {"1.lars_momentum_", "lars_momentum",
     "param:Param* grad:Grad* velocity:Velocity* learning_rate:LearningRate* "
     "master_param:MasterParam*?",
     "param_out:ParamOut*=param velocity_out:VelocityOut*=velocity "
     "master_param_out:MasterParamOut*=master_param",
     ""},
    // Sums of parameters over steps.
    {"1.average_accumulates_", "average_accumulates",
     "param:param in_sum_1:in_sum_1 in_sum_2:in_sum_2 in_sum_3:in_sum_3 "
     "in_num_accumulates:in_num_accumulates in_old_num_accumulates:in_old_num_accumulates "
     "in_num_updates:in_num_updates",
     "out_sum_1:out_sum_1=in_sum_1 out_sum_2:out_sum_2=in_sum_2 out_sum_3:out_sum_3=in_sum_3 "
     "out_num_accumulates:out_num_accumulates=in_num_accumulates "
     "out_old_num_accumulates:out_old_num_accumulates=in_old_num_accumulates "
     "out_num_updates:out_num_updates=in_num_updates",
     ""},
    // Loss scaling.
    {"1.check_finite_and_unscale_", "check_finite_and_unscale", "x:X* scale:Scale",
     "out:Out*=x found_infinite:FoundInfinite", ""},
    {"1.update_loss_scaling_", "update_loss_scaling",
     "x:X* found_infinite:FoundInfinite prev_loss_scaling:PrevLossScaling "
     "in_good_steps:InGoodSteps in_bad_steps:InBadSteps stop_update:@stop_update/BOOLEAN",
     "out:Out*=x loss_scaling:LossScaling=prev_loss_scaling "
     "out_good_steps:OutGoodSteps=in_good_steps out_bad_steps:OutBadSteps=in_bad_steps",
     ""},
};

}  // namespace

absl::Span<const OpRow> UpdateRows() { return kRows; }

}  // namespace weft::pir
