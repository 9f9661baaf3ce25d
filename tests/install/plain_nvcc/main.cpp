// Runs the kernels of every part on the host driver, and on the cuda driver where there is one: each runs where its
// file was compiled for, and is refused with a text elsewhere.
#include <cstdio>
#include <string>
#include <vector>

#include "parts.hpp"

namespace {

int errors = 0;

using Submit = kmm::EventId (*)(const kmm::RuntimeHandle&, kmm::Array<int>&);

// How often `submit` adds its number; 0: not at all, and it must be refused.
void expect(const kmm::RuntimeHandle& rt, const char* name, Submit submit, int number, int times) {
    constexpr int n = 32;
    kmm::Array<int> a = rt.allocate(std::vector<int>(n, 100));
    std::string refusal;
    try {
        rt.wait(submit(rt, a));
    } catch (const std::exception& error) {
        refusal = error.what();
    }
    const bool refused = refusal.find("compiled") != std::string::npos;
    if (refused != (times == 0)) {
        std::printf("%s: %s\n", name, refusal.empty() ? "was not refused" : refusal.c_str());
        errors++;
        return;
    }
    if (times == 0) return;
    for (const int value : a.copy_to_vector()) {
        if (value == 100 + times * number) continue;
        std::printf("%s: %d where %d was expected\n", name, value, 100 + times * number);
        errors++;
        return;
    }
}

void run(kmm::DriverKind driver) {
    const bool cuda = driver == kmm::DriverKind::CUDA;
    kmm::RuntimeConfig config;
    config.driver = driver;
    const kmm::RuntimeHandle rt = kmm::make_runtime(config);
    expect(rt, "the part compiled as CUDA", submit_cuda_part, number_of_cuda_part, cuda ? 3 : 0);
    expect(rt, "the plain part", submit_plain_part, number_of_plain_part, cuda ? 0 : 2);
    expect(rt, "the part with KMM_USE_CUDA=0", submit_emulated_part, number_of_emulated_part, cuda ? 0 : 2);
}

}  // namespace

int main() {
    run(kmm::DriverKind::Host);
    for (const kmm::DriverStatus& status : kmm::available_drivers()) {
        if (status.driver == kmm::DriverKind::CUDA && status.usable) run(status.driver);
    }
    std::printf("%d errors\n", errors);
    return errors == 0 ? 0 : 1;
}
