// The op families of common models, one function and one file (x_schemas.cc) each. extra/families.h
// has the others.
#ifndef WEFT_OPS_SCHEMA_FAMILIES_H_
#define WEFT_OPS_SCHEMA_FAMILIES_H_

#include "ops/schema/op_schema.h"

namespace weft {

// All of these.
void AddCoreSchemas(OpSchemaTable* schemas);

// Adds the schemas of one file.
using AddSchemas = void(OpSchemaTable* schemas);

// --- Elementwise and along one dimension --------------------------------------------------------

AddSchemas AddActivationSchemas, AddClipSchemas, AddCopySchemas, AddElementwiseSchemas,
    AddOrderStatisticsSchemas, AddReduceSchemas, AddSumSchemas, AddWhereSchemas;

// --- Tensors made, and elements moved -----------------------------------------------------------

AddSchemas AddConcatSplitSchemas, AddCreationSchemas, AddGatherScatterSchemas, AddRandomSchemas,
    AddReshapeSchemas, AddSelectedRowsSchemas, AddSetValueSchemas, AddStridedViewsSchemas,
    AddViewSchemas;

// --- Layers -------------------------------------------------------------------------------------

AddSchemas AddDropoutSchemas, AddLookupTableSchemas, AddMatmulSchemas, AddNormSchemas,
    AddRnnSchemas, AddWindowSchemas;

// --- Losses and metrics -------------------------------------------------------------------------

AddSchemas AddLossSchemas, AddMetricsSchemas;

// --- Updates ------------------------------------------------------------------------------------

AddSchemas AddAmpSchemas, AddOptimizerSchemas;

// --- Communication, control flow, debugging -----------------------------------------------------

AddSchemas AddCollectiveSchemas, AddControlSchemas, AddPrintSchemas, AddServerSchemas;

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_FAMILIES_H_
