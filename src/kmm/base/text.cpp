// Texts of the value types; see text.hpp.
#include "kmm/base/text.hpp"

#include <string>
#include <string_view>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"

namespace kmm::detail {

std::string text_of(DeviceId id) { return driver::format("GPU {}", id.get()); }

std::string text_of(MemoryId id) { return id.is_host() ? "host" : text_of(id.as_device()); }

std::string text_of(const ResourceId& id) {
    std::string text = text_of(id.as_memory());
    if (id.stream_affinity() == DeviceStreamSet::all()) return text;
    text += " {";
    bool first = true;
    for (std::size_t i = 0; i < DeviceStreamSet::MAX_STREAMS; i++) {
        if (!id.stream_affinity().contains(i)) continue;
        text += (first ? "" : ", ") + std::to_string(i);
        first = false;
    }
    return text + "}";
}

std::string place_text(DriverKind driver, std::size_t device) {
    return driver::format("{} {}", driver == DriverKind::Host ? "virtual GPU" : "GPU", device);
}

std::string text_of(DriverKind kind) {
    switch (kind) {
    case DriverKind::Auto: return "auto";
    case DriverKind::CUDA: return "cuda";
    case DriverKind::HIP: return "hip";
    case DriverKind::Host: break;
    }
    return "host";
}

std::string text_of(const Range<>& range) { return driver::format("{}...{}", range.begin, range.end); }

std::string text_of(const Region& region) {
    std::string text = "{";
    for (std::size_t i = 0; i < region.size(); i++) {
        text += (i > 0 ? ", " : "") + text_of(region[i]);
    }
    return text + "}";
}

const char* text_of(LauncherInfo::Kind kind) {
    switch (kind) {
    case LauncherInfo::Kind::kernel: return "GPUKernel";
    case LauncherInfo::Kind::device_function: return "GPU";
    case LauncherInfo::Kind::host: break;
    }
    return "Host";
}

std::string text_of(const LauncherInfo& launcher) {
    const std::string who = launcher.name == nullptr
                                ? driver::format("{} task", text_of(launcher.kind))
                                : driver::format("task \"{}\"", std::string_view(launcher.name, launcher.name_length));
    return launcher.location.is_known() ? driver::format("{} submitted at {}", who, to_string(launcher.location)) : who;
}

std::string text_of(const TaskLabel& task) {
    return driver::format("task \"{}\" chunk {} of {}", task.task_name, task.chunk_index, task.num_chunks);
}

std::string seconds_text(double seconds) {
    const auto three_digits = [](double value) {
        const int before_point = value >= 100 ? 3 : value >= 10 ? 2 : 1;
        std::string text = driver::fixed_text(value, 3 - before_point);
        if (text.find('.') == std::string::npos) return text;
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') text.pop_back();
        return text;
    };
    if (seconds >= 1) return three_digits(seconds) + " s";
    if (seconds >= 1e-3) return three_digits(seconds * 1e3) + " ms";
    if (seconds >= 1e-6) return three_digits(seconds * 1e6) + " us";
    return seconds > 0 ? driver::fixed_text(seconds * 1e6, 3) + " us" : "0 s";
}

std::string text_of_chunk(const DomainPoint& offset, const DomainDim& size) {
    std::size_t rank = DOMAIN_DIMS;
    while (rank > 1 && offset[rank - 1] == 0 && size[rank - 1] == 1) rank--;
    return driver::format("offset {}, size {}", list_text(offset, rank), list_text(size, rank));
}

std::string text_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        const char* const text = e.what();  // the program's class may return null
        return text != nullptr ? text : "an exception without a text: its what() is null";
    } catch (...) {
        return "an exception that is not a std::exception";
    }
}

}  // namespace kmm::detail
