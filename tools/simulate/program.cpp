#include "simulate/program.hpp"

namespace kmm::simulate {

void Program::named(trace::Number array, const std::string& name, std::int64_t) noexcept {
    for (trace::Array& a : arrays) {
        if (a.number != array) continue;
        a.name = name;
        a.is_named = true;
    }
}

void Program::bound(const trace::Array& array, std::int64_t) noexcept {
    arrays.push_back(array);
    if (array.num_pieces == 0) held_.insert(array.number);  // temporaries have no handles
}

void Program::drop(trace::Number number) {
    if (held_.erase(number) != 0) drops.emplace_back(tasks.size(), number);
}

void Program::note(const trace::Event& e, const trace::Fence*, std::size_t, std::int64_t, std::uint32_t) noexcept {
    if (e.what == trace::What::launch) launched_[{e.lane, e.position}] = e.task;
    if (e.what == trace::What::ran)
        if (const auto at = launched_.find({e.lane, e.position}); at != launched_.end())
            kernel_ns[at->second] = e.end_ns - e.begin_ns;
    // Records of older versions say only when it was free, which is later.
    if (e.what == trace::What::dropped || e.what == trace::What::array_freed) drop(e.array);
    if (e.what == trace::What::settled && !e.flag && e.other == e.task) failed.insert(e.task);
}

}  // namespace kmm::simulate
