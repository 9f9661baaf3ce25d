// What the examples share: whole numbers from the command line, a progress line, what the runtime moved.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "kmm/kmm.hpp"

/// A whole number that the command line may give; `value` is the default.
struct Argument {
    const char* name;
    int64_t value;
    int64_t smallest;
    int64_t largest;
};

/// Replaces the defaults by what the command line gives. Throws std::invalid_argument, which names what is wrong.
inline void read_arguments(int argc, char** argv, std::vector<Argument>& arguments) {
    if (std::size_t(argc) > arguments.size() + 1) throw std::invalid_argument("too many arguments");
    for (std::size_t i = 0; i + 1 < std::size_t(argc); i++) {
        Argument& argument = arguments[i];
        char* end = nullptr;
        const long long value = std::strtoll(argv[i + 1], &end, 10);
        if (end == argv[i + 1] || *end != '\0' || value < argument.smallest || value > argument.largest) {
            throw std::invalid_argument(std::string(argument.name) + " is \"" + argv[i + 1] +
                                        "\", and must be a whole number from " + std::to_string(argument.smallest) +
                                        " to " + std::to_string(argument.largest));
        }
        argument.value = value;
    }
}

/// Shows how far the tasks submitted since it was made have come, and what they moved.
class Progress {
  public:
    Progress(const kmm::RuntimeHandle& runtime, const char* what)
        : runtime_(runtime), what_(what), before_(runtime.stats()), start_(std::chrono::steady_clock::now()) {}

    /// Waits for `event`. A wait of more than half a second draws a bar, on a terminal.
    void wait(kmm::EventId event) {
        const bool is_terminal = isatty(STDERR_FILENO) != 0;
        bool drawn = false;
        while (!runtime_.wait_for(event, std::chrono::milliseconds(500))) {
            const kmm::RuntimeStats now = runtime_.stats() - before_;
            if (!is_terminal || now.tasks_submitted == 0) continue;
            const int filled = static_cast<int>(40 * now.tasks_succeeded / now.tasks_submitted);
            std::fprintf(stderr, "\r%s [%.*s%*s] %llu of %llu tasks", what_, filled,
                         "########################################", 40 - filled, "",
                         static_cast<unsigned long long>(now.tasks_succeeded),
                         static_cast<unsigned long long>(now.tasks_submitted));
            drawn = true;
        }
        if (drawn) std::fprintf(stderr, "\r\033[K");
    }

    /// Prints time, tasks, bytes over each link, gathered and evicted bytes, and the most memory in use. To be called
    /// after the wait.
    void print() const {
        const kmm::RuntimeStats moved = runtime_.stats() - before_;
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
        std::printf("%s: %llu tasks in %.3f s\n", what_, static_cast<unsigned long long>(moved.tasks_succeeded),
                    seconds.count());
        print_bytes("host to device", moved.host_to_device.bytes);
        print_bytes("device to host", moved.device_to_host.bytes);
        print_bytes("device to device", moved.device_to_device.bytes);
        print_bytes("gathered", moved.gathered_bytes);
        print_bytes("evicted", moved.evicted_bytes);
        for (const kmm::MemoryStats& memory : moved.memories) {
            if (memory.memory.is_device()) {
                std::printf("  GPU %d peak       %9.2f MiB of %.2f MiB\n", int(memory.memory.as_device().get()),
                            in_mib(memory.peak_bytes), in_mib(memory.limit_bytes));
            }
        }
    }

  private:
    static double in_mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }
    static void print_bytes(const char* name, std::uint64_t bytes) {
        std::printf("  %-16s %9.2f MiB\n", name, in_mib(bytes));
    }

    kmm::RuntimeHandle runtime_;
    const char* what_;
    kmm::RuntimeStats before_;
    std::chrono::steady_clock::time_point start_;
};

/// The whole of main: reads the arguments, calls `run(arguments)`, which returns whether the result is right. Exit
/// status 0: right; 1: wrong, or an error; 2: bad arguments.
template<typename F>
int run_example(int argc, char** argv, const char* program, std::vector<Argument> arguments, F run) {
    try {
        read_arguments(argc, argv, arguments);
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "%s: %s\nusage: %s", program, error.what(), program);
        for (const Argument& argument : arguments) std::fprintf(stderr, " [%s]", argument.name);
        std::fprintf(stderr, "\n");
        return 2;
    }
    try {
        const bool is_right = run(arguments);
        std::printf("%s: the result is %s\n", program, is_right ? "right" : "WRONG");
        return is_right ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", program, error.what());
        return 1;
    }
}
