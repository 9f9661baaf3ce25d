// A tool of NVTX that counts ranges by name and prints the counts when the process ends: what a profiler would see.
//
// Loaded by NVTX itself (NVTX_INJECTION64_PATH). Owns: the counts. Any thread.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#define NVTX_NO_IMPL
#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>

namespace {

struct Counts {
    std::mutex mutex;
    std::map<std::string, int> ranges;
    int open = 0;
};

/// Never destroyed: threads may end ranges while the process ends.
Counts& counts() {
    static auto* const the_counts = new Counts;
    return *the_counts;
}

void print() {
    const std::lock_guard<std::mutex> guard(counts().mutex);
    for (const auto& [name, count] : counts().ranges) std::printf("nvtx range \"%s\": %d\n", name.c_str(), count);
    std::printf("nvtx ranges still open: %d\n", counts().open);
}

int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
    const std::lock_guard<std::mutex> guard(counts().mutex);
    ++counts().ranges[attributes->message.ascii];
    return ++counts().open;
}

int pop(nvtxDomainHandle_t) {
    const std::lock_guard<std::mutex> guard(counts().mutex);
    return --counts().open;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
    *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
    std::atexit(print);
    return 1;
}
