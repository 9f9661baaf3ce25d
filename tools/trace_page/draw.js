// Draws what is visible of the rows. Slices narrower than a pixel are one column, as strong as the column is busy, so
// that a frame costs by its width and not by the number of events.

const canvas = document.getElementById("canvas");
const pen = canvas.getContext("2d");
const gutter = 196;
const axis_height = 26;
const slice_height = 17;
const wait_height = 14;
const wait_curve_height = 34;
const group_height = 24;
const memory_height = 58;
const mark_height = 17;
const font = "12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
const small_font = "11px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";

const view = {
  from: head.begin_ns,
  to: head.end_ns,
  scroll: 0,
  width: 0,
  height: 0
};
const choice = {
  find: "",
  task: -1,
  colour: "name",
  folded: new Set()
};

// Colours: the fixed kinds first, then those of the names of tasks, then the rest of the tasks.
const kind_colours = {
  up: "#3d7fc1",
  down: "#dd8526",
  peer: "#8a63c4",
  inside: "#8fa1b3",
  kernel: "#2f9e69",
  function: "#14909b",
  "host task": "#a57c14",
  submit: "#98a5b3",
  plan: "#74808d",
  wait: "#d6455d",
  other: "#9b8f80",
};
const name_colours =
    ["#2f9e69", "#c2578e", "#b58a1b", "#14909b", "#7a55a3", "#74992e", "#b0583a", "#4a63b8", "#d98fb3", "#4f7d5f"];
const rest_colour = "#9b8f80";
const colours = [...Object.values(kind_colours), ...name_colours, rest_colour];
const colour_of_kind = (kind) => Math.max(0, Object.keys(kind_colours).indexOf(kind));
const faint = "#e3e7ec";
const levels = 12;

// Each colour in `levels` steps from light to full.
const shades = colours.map((colour) => {
  const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return Array.from({length: levels + 1}, (_, level) => {
    const share = 0.25 + 0.75 * level / levels;
    return `rgb(${parts.map((part) => Math.round(255 - (255 - part) * share)).join(",")})`;
  });
});

// White on dark colours, nearly black on light ones.
const text_colours = colours.map((colour) => {
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.3 * red + 0.59 * green + 0.11 * blue > 140 ? "#1a1d21" : "#fff";
});

const is_wait = (group) => group.category.startsWith("wait");
const kind_of = (group) => {
  if (group.category === "copy") return group.way;
  if (is_wait(group)) return "wait";
  return group.category in kind_colours ? group.category : "other";
};
const runs_tasks = (group) => ["kernel", "function", "host task"].includes(group.category);

// Gives every group a colour; the names that took the most time get those of their own.
function choose_colours() {
  const totals = new Map();
  for (const group of groups)
    if (runs_tasks(group)) totals.set(group.label, (totals.get(group.label) ?? 0) + group.total);
  const names = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a)).slice(0, name_colours.length);
  const first = Object.keys(kind_colours).length;
  for (const group of groups) {
    const rank = choice.colour === "name" && runs_tasks(group) ? names.indexOf(group.label) : -2;
    group.colour = rank === -2 ? colour_of_kind(kind_of(group)) : rank === -1 ? colours.length - 1 : first + rank;
  }
}

// Texts of numbers.
const us = 1e3, ms = 1e6, s = 1e9;
function unit_of(ns) { return ns >= s ? [s, "s"] : ns >= ms ? [ms, "ms"] : ns >= us ? [us, "µs"] : [1, "ns"]; }
function time_text(ns, digits = 4) {
  const [unit, name] = unit_of(Math.abs(ns));
  const value = ns / unit;
  const decimals = unit === 1 ? 0 : Math.max(0, digits - Math.max(1, Math.ceil(Math.log10(Math.abs(value) + 1e-9))));
  return `${value.toFixed(decimals)} ${name}`;
}
function bytes_text(value) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; Math.abs(value) >= 1024 && unit + 1 < units.length; unit++) value /= 1024;
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${units[unit]}`;
}

// The rows from top to bottom: {kind, top, height, process, label, ...}; `top` is without the scroll.
let rows = [];
function lay_out() {
  rows = [];
  let top = axis_height;
  const add = (row, height) => {
    rows.push(Object.assign(row, {top, height}));
    top += height;
  };
  head.processes.forEach((process, p) => {
    add({kind: "group", process: p, label: process.name}, group_height);
    if (choice.folded.has(p)) return;
    head.lanes.forEach((lane, l) => {
      if (lane.process !== p) return;
      const own = tracks.filter((track) => track.lane === l).sort((a, b) => a.depth - b.depth);
      add({kind: "lane", process: p, label: lane.name, tracks: own, step: slice_height},
          Math.max(1, own.length) * slice_height + 3);
    });
    for (const series of all_series)
      if (series.process === p) add({kind: "counter", process: p, label: series.name, series}, memory_height);
    for (const {category, series, packed} of wait_rows.get(p) ?? []) {
      add({kind: "counter", process: p, label: category, series}, wait_curve_height);
      add({kind: "waits", process: p, label: "the longest", tracks: packed, step: wait_height},
          packed.length * wait_height + 5);
    }
    const own_marks = mark_rows.get(p);
    if (own_marks) add({kind: "marks", process: p, label: own_marks.label, marks: own_marks}, mark_height);
  });
  view.bottom = top + 6;
}

const wait_rows = new Map();
const mark_rows = new Map();
function group_beside_lanes() {
  const by_category = new Map();
  for (const wait of waits) {
    const key = `${wait.process} ${wait.category}`;
    if (!by_category.has(key)) by_category.set(key, []);
    by_category.get(key).push(wait);
  }
  for (const list of by_category.values()) {
    const [{process, category}] = list;
    if (!wait_rows.has(process)) wait_rows.set(process, []);
    wait_rows.get(process).push({category, series: count_waits(process, category, list), packed: pack_waits(list)});
  }
  for (const mark of marks) {
    if (!mark_rows.has(mark.process)) mark_rows.set(mark.process, []);
    mark_rows.get(mark.process).push(mark);
  }
  const names = {evict: "evictions", fail: "failures"};
  for (const list of mark_rows.values()) {
    list.times = Float64Array.from(list, (mark) => mark.time);
    list.label = [...new Set(list.map((mark) => names[mark.category] ?? mark.category))].join(", ");
  }
}

const scale = () => (view.width - gutter) / (view.to - view.from);
const x_of = (time) => gutter + (time - view.from) * scale();
const time_at = (x) => view.from + (x - gutter) / scale();

// Measuring is slow, and the same names come in every frame.
const widths = new Map();
function width_of(text) {
  const key = pen.font + text;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20000) widths.clear();
    widths.set(key, width = pen.measureText(text).width);
  }
  return width;
}

// The text, as much of its beginning as fits, or nothing.
function clip_text(text, width) {
  const whole = width_of(text);
  if (whole <= width) return text;
  const fits = Math.floor(text.length * width / whole) - 2;
  return fits < 2 ? "" : text.slice(0, fits) + "…";
}

const filtered = () => choice.find !== "" || choice.task >= 0;
function matching(track, first, last) {
  return track.matches === null ? 0 : track.matches[last] - track.matches[first];
}

// The longest of at most 16 slices, for the colour of a column.
function longest_of(track, first, last) {
  const step = Math.max(1, Math.floor((last - first) / 16));
  let best = first;
  for (let i = first; i < last; i += step)
    if (track.end[i] - track.begin[i] > track.end[best] - track.begin[best]) best = i;
  return best;
}

function first_match(track, first, last) { return first_at_least(track.matches, track.matches[first] + 1, first) - 1; }

function draw_track(track, y, height) {
  const per_ns = scale();
  let [i, last] = visible(track, view.from, view.to);
  const column = {x: -1, end: -1, style: ""};
  const flush = () => {
    if (column.end <= column.x) return;
    pen.fillStyle = column.style;
    pen.fillRect(column.x, y, column.end - column.x, height);
  };
  while (i < last) {
    const left = gutter + (track.begin[i] - view.from) * per_ns;
    const right = gutter + (track.end[i] - view.from) * per_ns;
    if (right - left >= 1.5) {
      draw_slice(track, i, Math.max(left, gutter), Math.min(right, view.width), y, height);
      i++;
      continue;
    }
    const x = Math.max(gutter, Math.floor(left));
    const column_end = view.from + (x + 1 - gutter) / per_ns;
    let next = first_at_least(track.begin, column_end, i + 1);
    next = Math.min(next, last);
    // The last one may reach out of the column: then it is drawn on its own.
    if (next - 1 > i && (track.end[next - 1] - track.begin[next - 1]) * per_ns >= 1.5) next--;
    let shown = -1;
    let level = levels;
    if (!filtered() || matching(track, i, next) > 0) {
      shown = filtered() ? first_match(track, i, next) : longest_of(track, i, next);
      if (!filtered()) level = Math.round(levels * Math.min(1, (track.busy[next] - track.busy[i]) * per_ns));
    }
    const style = shown < 0 ? faint : shades[groups[track.group[shown]].colour][level];
    if (style !== column.style || x !== column.end) {
      flush();
      column.x = x;
      column.style = style;
    }
    column.end = x + 1;
    i = next;
  }
  flush();
}

function draw_slice(track, i, left, right, y, height) {
  const lit = !filtered() || matching(track, i, i + 1) > 0;
  const width = Math.max(1, right - left - (right - left > 4 ? 0.7 : 0));
  pen.fillStyle = lit ? shades[groups[track.group[i]].colour][levels] : faint;
  pen.fillRect(left, y, width, height);
  if (choice.task >= 0 && track.task[i] === choice.task && height > 10) {
    pen.strokeStyle = "#111";
    pen.strokeRect(left + 0.5, y + 0.5, Math.max(1, width - 1), height - 1);
  }
  if (width < 20) return;
  const name = texts[track.name[i]];
  const with_size = track.bytes !== null ? `${name}  ${bytes_text(track.bytes[i])}` : name;
  const text = clip_text(width_of(with_size) <= width - 6 ? with_size : name, width - 6);
  pen.fillStyle = lit ? text_colours[groups[track.group[i]].colour] : "#74808d";
  pen.fillText(text, left + 4, y + height / 2 + 0.5);
}

// Steps through the values, for each column the highest (`most`) or the lowest of those within it.
function step_path(series, values, most, y, height) {
  const points = [];
  const {time, count} = series;
  const per_ns = scale();
  const y_of = (value) => y + height - height * value / series.most;
  let i = first_at_least(time, view.from);
  // Before the first sample nothing is known.
  let value = values[Math.max(0, i - 1)];
  points.push([i > 0 ? gutter : Math.max(gutter, x_of(time[0])), y_of(value)]);
  while (i < count && time[i] < view.to) {
    const x = Math.floor(gutter + (time[i] - view.from) * per_ns);
    const column_end = view.from + (x + 1 - gutter) / per_ns;
    let shown = value;
    const first = i;
    for (; i < count && time[i] < column_end; i++)
      if (most ? values[i] > shown : values[i] < shown) shown = values[i];
    // One change is where it is; of several within a pixel there is a whole column.
    if (i - first === 1) shown = values[first];
    if (shown !== value || values[i - 1] !== value) {
      points.push([x, y_of(value)], [x, y_of(shown)], [x + 1, y_of(shown)], [x + 1, y_of(values[i - 1])]);
    }
    value = values[i - 1];
  }
  points.push([Math.min(view.width, x_of(head.end_ns)), y_of(value)]);
  return points;
}

function draw_path(points) {
  pen.beginPath();
  points.forEach(([x, y], i) => (i === 0 ? pen.moveTo(x, y) : pen.lineTo(x, y)));
}

function fill_below(points, bottom, colour) {
  draw_path(points);
  pen.lineTo(points[points.length - 1][0], bottom);
  pen.lineTo(points[0][0], bottom);
  pen.fillStyle = colour;
  pen.fill();
}

const counter_styles = {
  "in use": {fill: "#6f9fd0", between: "#a9c6e3", line: "#2f6299"},
  held: {fill: "#dde8f3", line: "#8fb0d1"},
  tasks: {fill: "#ee9fab", between: "#f6ccd2", line: "#b93448"},
  limit: {line: "#c0392b", dash: [5, 4]},
};
const counter_order = ["held", "in use", "limit"];
const more_lines = ["#b58a1b", "#7a55a3", "#2f9e69"];

function draw_counter(row, y) {
  const top = y + 5;
  const height = row.height - 9;
  pen.strokeStyle = "#e3e7ec";
  pen.strokeRect(gutter + 0.5, top + 0.5, view.width - gutter, height);
  const keys = [...row.series.keys].sort((a, b) => counter_order.indexOf(a.key) - counter_order.indexOf(b.key));
  keys.forEach(({key, values}, k) => {
    const style = counter_styles[key] ?? {line: more_lines[k % more_lines.length]};
    const points = step_path(row.series, values, true, top, height);
    if (style.fill) fill_below(points, top + height, style.between ?? style.fill);
    if (style.between) fill_below(step_path(row.series, values, false, top, height), top + height, style.fill);
    draw_path(points);
    pen.strokeStyle = style.line;
    pen.setLineDash(style.dash ?? []);
    // Where nearly every column goes up and down the line would hide what is filled.
    pen.globalAlpha = points.length > 2 * view.width ? 0.3 : 1;
    pen.stroke();
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  });
}

function draw_marks(row, y) {
  const {times} = row.marks;
  let last = {saved: -9, dropped: -9, fail: -9};
  const from = first_at_least(times, time_at(gutter - 6));
  for (let i = from; i < times.length && times[i] <= view.to; i++) {
    const mark = row.marks[i];
    const x = Math.round(x_of(times[i])) + 0.5;
    const kind = mark.category === "evict" ? (mark.saved ? "saved" : "dropped") : "fail";
    if (x - last[kind] < 5) continue;
    last[kind] = x;
    const lit = !filtered() || is_match(mark.name, mark.task);
    if (kind === "fail")
      draw_cross(x, y + 8, lit);
    else
      draw_eviction(x, y + 3, kind === "saved", lit);
  }
}

// A triangle that points down, full where the data went to the memory below, empty where it was only forgotten.
function draw_eviction(x, y, saved, lit) {
  pen.beginPath();
  pen.moveTo(x - 4, y);
  pen.lineTo(x + 4, y);
  pen.lineTo(x, y + 9);
  pen.closePath();
  pen.fillStyle = !lit ? faint : saved ? kind_colours.down : "#fff";
  pen.fill();
  pen.strokeStyle = lit ? "#b56a18" : "#c3cad2";
  pen.stroke();
}

function draw_cross(x, y, lit) {
  pen.strokeStyle = lit ? "#c0121f" : "#c3cad2";
  pen.lineWidth = 2.5;
  pen.beginPath();
  pen.moveTo(x - 5, y - 5);
  pen.lineTo(x + 5, y + 5);
  pen.moveTo(x + 5, y - 5);
  pen.lineTo(x - 5, y + 5);
  pen.stroke();
  pen.lineWidth = 1;
}

function draw_fail_lines() {
  pen.fillStyle = "#c0121f40";
  for (const mark of marks)
    if (mark.category === "fail" && mark.time >= view.from && mark.time <= view.to)
      pen.fillRect(Math.round(x_of(mark.time)) - 0.5, axis_height, 1.5, view.height);
}

// Steps of 1, 2, 5 times a power of ten, about 110 pixels apart.
function tick_step() {
  const rough = 110 / scale();
  const power = 10 ** Math.floor(Math.log10(rough));
  return Math.max(1, [1, 2, 5, 10].find((f) => f * power >= rough) * power);
}

function draw_grid() {
  const step = tick_step();
  pen.fillStyle = "#eef1f4";
  for (let time = Math.ceil(view.from / step) * step; time < view.to; time += step)
    pen.fillRect(Math.round(x_of(time)), axis_height, 1, view.height);
}

function draw_axis() {
  const step = tick_step();
  const [unit, name] = unit_of(Math.max(Math.abs(view.from), Math.abs(view.to)));
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, view.width, axis_height);
  pen.fillStyle = "#3a434d";
  pen.font = small_font;
  pen.fillText(`${time_text(view.to - view.from)} in view`, 12, 13);
  pen.textAlign = "center";
  for (let time = Math.ceil(view.from / step) * step; time < view.to; time += step) {
    const x = Math.round(x_of(time));
    pen.fillRect(x, axis_height - 5, 1, 5);
    const text = `${(time / unit).toFixed(decimals)} ${name}`;
    if (x - gutter > 30 && view.width - x > 30) pen.fillText(text, x, 12);
  }
  pen.textAlign = "left";
  pen.fillRect(0, axis_height - 1, view.width, 1);
}

function draw_row(row, y) {
  if (row.kind === "group") return;
  if (row.kind === "counter") return draw_counter(row, y);
  if (row.kind === "marks") return draw_marks(row, y);
  row.tracks.forEach((track, i) => draw_track(track, y + 2 + i * row.step, row.step - 1));
}

// Over the rows: names, and what was busy in view.
function draw_gutter() {
  pen.fillStyle = "#fafbfc";
  pen.fillRect(0, axis_height, gutter, view.height);
  for (const row of rows) {
    const y = row.top - view.scroll;
    if (y + row.height < axis_height || y > view.height) continue;
    if (row.kind === "group") {
      pen.fillStyle = "#e9eef3";
      pen.fillRect(0, y, view.width, row.height - 2);
      pen.fillStyle = "#22272e";
      pen.font = "600 " + font;
      pen.fillText(`${choice.folded.has(row.process) ? "▸" : "▾"}  ${row.label}`, 10, y + row.height / 2 - 0.5);
      continue;
    }
    pen.fillStyle = "#3a434d";
    pen.font = font;
    const line = y +
        (row.kind === "lane" || row.kind === "waits" ? 2 + slice_height / 2 :
             row.kind === "counter"                  ? 13 :
                                                       row.height / 2);
    pen.fillText(clip_text(row.label, gutter - 74), 24, line);
    pen.font = small_font;
    pen.fillStyle = "#74808d";
    pen.textAlign = "right";
    if (row.kind === "lane") pen.fillText(busy_text(row), gutter - 8, line);
    if (row.kind === "counter") draw_scale(row, y);
    pen.textAlign = "left";
  }
  pen.fillStyle = "#c3cad2";
  pen.fillRect(gutter - 1, axis_height, 1, view.height);
}

const value_of = (series) =>
    (series.name === "memory"           ? bytes_text :
         series.keys[0].key === "tasks" ? (n) => `${n} tasks` :
                                          String);

function draw_scale(row, y) {
  const text = value_of(row.series);
  pen.fillText(text(row.series.most), gutter - 8, y + 11);
  if (row.height < memory_height) return;
  pen.fillText("0", gutter - 8, y + row.height - 9);
  pen.textAlign = "left";
  const used = row.series.keys.find((k) => k.key === "in use");
  if (used) pen.fillText(`peak ${text(used.most)}`, 24, y + 29);
}

function busy_text(row) {
  if (row.tracks.length === 0) return "idle";
  const from = Math.max(view.from, head.begin_ns);
  const to = Math.min(view.to, head.end_ns);
  const share = 100 * busy_time(row.tracks[0], from, to) / Math.max(1, to - from);
  return `${share.toFixed(share < 10 ? 1 : 0)} %`;
}

function draw() {
  const ratio = window.devicePixelRatio || 1;
  const {clientWidth, clientHeight} = canvas.parentElement;
  if (canvas.width !== Math.round(clientWidth * ratio) || canvas.height !== Math.round(clientHeight * ratio)) {
    canvas.width = Math.round(clientWidth * ratio);
    canvas.height = Math.round(clientHeight * ratio);
  }
  view.width = clientWidth;
  view.height = clientHeight;
  view.scroll = Math.max(0, Math.min(view.scroll, view.bottom - view.height));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, view.width, view.height);
  pen.textBaseline = "middle";
  pen.lineWidth = 1;
  draw_grid();
  pen.font = small_font;
  for (const row of rows) {
    const y = row.top - view.scroll;
    if (y + row.height >= axis_height && y <= view.height) draw_row(row, y);
  }
  draw_fail_lines();
  draw_gutter();
  draw_axis();
  if (choice.range) {
    pen.fillStyle = "#3d7fc133";
    const [a, b] = choice.range;
    pen.fillRect(Math.min(a, b), axis_height, Math.abs(b - a), view.height);
    pen.fillStyle = "#22272e";
    pen.fillText(time_text(Math.abs(time_at(b) - time_at(a))), Math.min(a, b) + 4, axis_height + 10);
  }
}
