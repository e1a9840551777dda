// The op families that few models use, one function and one file (x_schemas.cc) each. Outside this
// directory only the table of all schemas depends on them.
#ifndef WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_
#define WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_

#include "ops/schema/op_schema.h"

namespace weft {

// All of these.
void AddExtraSchemas(OpSchemaTable* schemas);

// --- Linear algebra -----------------------------------------------------------------------------

void AddBilinearTensorProductSchemas(OpSchemaTable* schemas);
void AddCrossSchemas(OpSchemaTable* schemas);
void AddDenseAlgebraSchemas(OpSchemaTable* schemas);
void AddDiagonalSchemas(OpSchemaTable* schemas);
void AddDistSchemas(OpSchemaTable* schemas);
void AddEinsumSchemas(OpSchemaTable* schemas);
void AddKronSchemas(OpSchemaTable* schemas);

// --- Functions of numbers ------------------------------------------------------------------------

void AddSpecialFunctionSchemas(OpSchemaTable* schemas);

// --- Normalization and activation ---------------------------------------------------------------

void AddDataNormSchemas(OpSchemaTable* schemas);
void AddGumbelSoftmaxSchemas(OpSchemaTable* schemas);
void AddL2NormalizeSchemas(OpSchemaTable* schemas);
void AddLrnSchemas(OpSchemaTable* schemas);
void AddMaxoutSchemas(OpSchemaTable* schemas);
void AddRenormSchemas(OpSchemaTable* schemas);
void AddRreluSchemas(OpSchemaTable* schemas);
void AddSpectralNormSchemas(OpSchemaTable* schemas);

// --- Images and detection -----------------------------------------------------------------------

void AddDeformableConvSchemas(OpSchemaTable* schemas);
void AddFractionalPoolSchemas(OpSchemaTable* schemas);
void AddGridSampleSchemas(OpSchemaTable* schemas);
void AddInterpolateSchemas(OpSchemaTable* schemas);
void AddPadSchemas(OpSchemaTable* schemas);
void AddPaddle1Schemas(OpSchemaTable* schemas);
void AddPixelShuffleSchemas(OpSchemaTable* schemas);
void AddRoiPoolingSchemas(OpSchemaTable* schemas);
void AddTemporalShiftSchemas(OpSchemaTable* schemas);
void AddUnfoldSchemas(OpSchemaTable* schemas);
void AddUnpoolSchemas(OpSchemaTable* schemas);
void AddYoloSchemas(OpSchemaTable* schemas);

// --- Sequences and search -----------------------------------------------------------------------

void AddBincountSchemas(OpSchemaTable* schemas);
void AddCtcSchemas(OpSchemaTable* schemas);
void AddFrameSchemas(OpSchemaTable* schemas);
void AddGatherTreeSchemas(OpSchemaTable* schemas);
void AddRowConvSchemas(OpSchemaTable* schemas);
void AddSearchsortedSchemas(OpSchemaTable* schemas);
void AddSegmentPoolSchemas(OpSchemaTable* schemas);
void AddUniqueSchemas(OpSchemaTable* schemas);

// --- Large vocabularies and click-through rates -------------------------------------------------

void AddClassWeightsSchemas(OpSchemaTable* schemas);
void AddCvmSchemas(OpSchemaTable* schemas);
void AddShardIndexSchemas(OpSchemaTable* schemas);

// --- Other --------------------------------------------------------------------------------------

void AddBroadcastTensorsSchemas(OpSchemaTable* schemas);
void AddModelAverageSchemas(OpSchemaTable* schemas);
void AddMultiplexSchemas(OpSchemaTable* schemas);
void AddRollSchemas(OpSchemaTable* schemas);
void AddSparsifySchemas(OpSchemaTable* schemas);

// --- Gradients of gradients, made from the schemas of the ops -----------------------------------

void AddSecondGradientsSchemas(OpSchemaTable* schemas);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_
