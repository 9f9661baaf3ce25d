// The version of this library. Owns only constants.
#pragma once

#define KMM_VERSION_MAJOR 0
#define KMM_VERSION_MINOR 4
#define KMM_VERSION_PATCH 0
/// major * 10000 + minor * 100 + patch
#define KMM_VERSION (KMM_VERSION_MAJOR * 10000 + KMM_VERSION_MINOR * 100 + KMM_VERSION_PATCH)
