#include "trace.hpp"

#include <functional>

namespace kmm::tools {

std::string_view Texts::operator[](TextId id) const {
    const std::uint64_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(bytes_).substr(begin, ends_[id] - begin);
}

TextId Texts::add(std::string_view text) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = std::hash<std::string_view>{}(text)&mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask)
        if ((*this)[slots_[slot] - 1] == text) return slots_[slot] - 1;
    const auto id = static_cast<TextId>(ends_.size());
    bytes_ += text;
    ends_.push_back(bytes_.size());
    slots_[slot] = id + 1;
    if (ends_.size() * 2 > slots_.size()) grow();
    return id;
}

void Texts::grow() {
    slots_.assign(slots_.size() * 2, 0);
    const std::size_t mask = slots_.size() - 1;
    for (TextId id = 0; id < ends_.size(); ++id) {
        std::size_t slot = std::hash<std::string_view>{}((*this)[id]) & mask;
        while (slots_[slot] != 0) slot = (slot + 1) & mask;
        slots_[slot] = id + 1;
    }
}

const Argument* Trace::find(Arguments of, std::string_view key) const {
    for (std::uint32_t i = of.begin; i < of.begin + of.count; ++i)
        if (texts[arguments[i].key] == key) return &arguments[i];
    return nullptr;
}

double Trace::number(Arguments of, std::string_view key) const {
    const Argument* found = find(of, key);
    if (found == nullptr) return 0;
    if (found->kind == Argument::Kind::integer) return static_cast<double>(found->integer);
    return found->kind == Argument::Kind::number ? found->number : 0;
}

std::string_view Trace::said(std::string_view key, std::string_view otherwise) const {
    for (const auto& [name, value] : about)
        if (name == key) return value;
    return otherwise;
}

Way way_of(std::string_view from, std::string_view to) {
    if (from == to) return Way::inside;
    if (from == "host") return Way::up;
    return to == "host" ? Way::down : Way::peer;
}

}  // namespace kmm::tools
