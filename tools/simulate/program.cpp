#include "simulate/program.hpp"

namespace kmm::simulate {

void Program::named(trace::Number array, const std::string& name, std::int64_t) noexcept {
    for (trace::Array& a : arrays) {
        if (a.number != array) continue;
        a.name = name;
        a.is_named = true;
    }
}

void Program::note(const trace::Event& e, const trace::Fence*, std::size_t, std::int64_t, std::uint32_t) noexcept {
    if (e.what == trace::What::launch) launched_[{e.lane, e.position}] = e.task;
    if (e.what == trace::What::ran)
        if (const auto at = launched_.find({e.lane, e.position}); at != launched_.end())
            kernel_ns[at->second] = e.end_ns - e.begin_ns;
    if (e.what == trace::What::settled && !e.flag && e.other == e.task) failed.insert(e.task);
}

}  // namespace kmm::simulate
