// The op families that few models use. Outside this directory only the table of all schemas depends
// on them.
#ifndef WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_
#define WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_

#include "ops/schema/op_schema.h"

namespace weft {

// All of these.
void AddExtraSchemas(OpSchemaTable* schemas);

// --- Linear algebra -----------------------------------------------------------------------------

void AddDenseAlgebraSchemas(OpSchemaTable* schemas);
void AddDiagonalSchemas(OpSchemaTable* schemas);
void AddProductSchemas(OpSchemaTable* schemas);

// --- Functions of numbers -----------------------------------------------------------------------

void AddSpecialFunctionSchemas(OpSchemaTable* schemas);

// --- Normalization and activation ---------------------------------------------------------------

void AddNormalizationSchemas(OpSchemaTable* schemas);
void AddSamplingSchemas(OpSchemaTable* schemas);

// --- Images and detection -----------------------------------------------------------------------

void AddDeformableConvSchemas(OpSchemaTable* schemas);
void AddFractionalPoolSchemas(OpSchemaTable* schemas);
void AddGridSampleSchemas(OpSchemaTable* schemas);
void AddImageSchemas(OpSchemaTable* schemas);
void AddInterpolateSchemas(OpSchemaTable* schemas);
void AddPadSchemas(OpSchemaTable* schemas);
void AddPaddle1Schemas(OpSchemaTable* schemas);
void AddPixelShuffleSchemas(OpSchemaTable* schemas);
void AddUnfoldSchemas(OpSchemaTable* schemas);
void AddYoloSchemas(OpSchemaTable* schemas);

// --- Sequences and search -----------------------------------------------------------------------

void AddIndexingSchemas(OpSchemaTable* schemas);
void AddSequenceSchemas(OpSchemaTable* schemas);

// --- Large vocabularies and click-through rates -------------------------------------------------

void AddClassWeightsSchemas(OpSchemaTable* schemas);
void AddCvmSchemas(OpSchemaTable* schemas);

// --- Other --------------------------------------------------------------------------------------

void AddBroadcastTensorsSchemas(OpSchemaTable* schemas);
void AddModelAverageSchemas(OpSchemaTable* schemas);
void AddRollSchemas(OpSchemaTable* schemas);
void AddSparsifySchemas(OpSchemaTable* schemas);

// --- Gradients of gradients, made from the schemas of the ops -----------------------------------

void AddSecondGradientsSchemas(OpSchemaTable* schemas);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_
