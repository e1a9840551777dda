// The op families of common models, one function and one file (x_schemas.cc) each. extra/families.h
// has the others.
#ifndef WEFT_OPS_SCHEMA_FAMILIES_H_
#define WEFT_OPS_SCHEMA_FAMILIES_H_

#include "ops/schema/op_schema.h"

namespace weft {

// All of these.
void AddCoreSchemas(OpSchemaTable* schemas);

// --- Elementwise and along one dimension --------------------------------------------------------

void AddActivationSchemas(OpSchemaTable* schemas);
void AddClipSchemas(OpSchemaTable* schemas);
void AddCopySchemas(OpSchemaTable* schemas);
void AddElementwiseSchemas(OpSchemaTable* schemas);
void AddOrderStatisticsSchemas(OpSchemaTable* schemas);
void AddReduceSchemas(OpSchemaTable* schemas);
void AddSumSchemas(OpSchemaTable* schemas);
void AddWhereSchemas(OpSchemaTable* schemas);

// --- Tensors made, and elements moved -----------------------------------------------------------

void AddConcatSplitSchemas(OpSchemaTable* schemas);
void AddCreationSchemas(OpSchemaTable* schemas);
void AddGatherScatterSchemas(OpSchemaTable* schemas);
void AddRandomSchemas(OpSchemaTable* schemas);
void AddReshapeSchemas(OpSchemaTable* schemas);
void AddSelectedRowsSchemas(OpSchemaTable* schemas);
void AddSetValueSchemas(OpSchemaTable* schemas);
void AddStridedViewsSchemas(OpSchemaTable* schemas);
void AddViewSchemas(OpSchemaTable* schemas);

// --- Layers -------------------------------------------------------------------------------------

void AddDropoutSchemas(OpSchemaTable* schemas);
void AddLookupTableSchemas(OpSchemaTable* schemas);
void AddMatmulSchemas(OpSchemaTable* schemas);
void AddNormSchemas(OpSchemaTable* schemas);
void AddRnnSchemas(OpSchemaTable* schemas);
void AddWindowSchemas(OpSchemaTable* schemas);

// --- Losses and metrics -------------------------------------------------------------------------

void AddLossSchemas(OpSchemaTable* schemas);
void AddMetricsSchemas(OpSchemaTable* schemas);

// --- Updates ------------------------------------------------------------------------------------

void AddAmpSchemas(OpSchemaTable* schemas);
void AddOptimizerSchemas(OpSchemaTable* schemas);

// --- Communication, control flow, debugging -----------------------------------------------------

void AddCollectiveSchemas(OpSchemaTable* schemas);
void AddControlSchemas(OpSchemaTable* schemas);
void AddPrintSchemas(OpSchemaTable* schemas);
void AddServerSchemas(OpSchemaTable* schemas);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_FAMILIES_H_
