// Implements nvtx_ranges.hpp where the toolkit has it. Any thread.
#include "driver/nvtx_ranges.hpp"

#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>

namespace kmm::driver::nvtx {
namespace {

/// Never destroyed: runtimes may be static objects.
nvtxDomainHandle_t ranges_domain() noexcept {
    static nvtxDomainHandle_t const the_domain = nvtxDomainCreateA("kmm");
    return the_domain;
}

}  // namespace

bool has_ranges() noexcept { return true; }

void push_range(const char* name) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(ranges_domain(), &attributes);
}

void pop_range() noexcept { nvtxDomainRangePop(ranges_domain()); }

}  // namespace kmm::driver::nvtx
