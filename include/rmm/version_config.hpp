// The version of the interface that this library offers: users branch on it with `>=`. The project's own version is in
// KMM_VERSION_*.
#pragma once

#define RMM_VERSION_MAJOR 25
#define RMM_VERSION_MINOR 10
#define RMM_VERSION_PATCH 0
