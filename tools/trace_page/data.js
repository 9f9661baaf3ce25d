// Reads the blocks of data (tools/trace_page.hpp says what is in them) into rows that can be searched and drawn.
// Times are nanoseconds of the trace.

const read_json = (id) => JSON.parse(document.getElementById(id).textContent);
const head = read_json("kmm-head");
const texts = read_json("kmm-texts");
const bytes = (() => {
  const text = atob(document.getElementById("kmm-rows").textContent);
  const list = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) list[i] = text.charCodeAt(i);
  return list;
})();
const doubles = new DataView(bytes.buffer);
let at = 0;

function number() {
  let byte = bytes[at++];
  if (byte < 128) return byte;
  let value = byte & 127;
  let scale = 128;
  do {
    byte = bytes[at++];
    value += (byte & 127) * scale;
    scale *= 128;
  } while (byte >= 128);
  return value;
}

// An even number n is n / 2, an odd one -(n + 1) / 2.
function signed() {
  const value = number();
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

function argument_value(kind) {
  if (kind === "i") return signed();
  if (kind === "t") return texts[number()];
  if (kind === "w") return {true: true, false: false, null: null}[texts[number()]];
  at += 8;
  return doubles.getFloat64(at - 8, true);
}

// [key, value] of the arguments at a place in the rows.
function arguments_at(place) {
  at = place;
  return head.shapes[number()].map(([key, kind]) => [key, argument_value(kind)]);
}

// What the drawing needs of the arguments of each slice; the others are read when somebody asks.
const needed = ["task", "array", "bytes", "from", "to"];
const shape_needs = head.shapes.map((shape) => shape.map(([key, kind]) => [needed.indexOf(key), kind]));
const found = [null, null, null, null, null];
function skim_arguments() {
  found.fill(null);
  for (const [need, kind] of shape_needs[number()]) {
    if (need >= 0) {
      found[need] = argument_value(kind);
    } else if (kind === "d") {
      at += 8;
    } else {
      while (bytes[at++] >= 128);
    }
  }
  return found;
}

function way_of(from, to) {
  if (from === to) return "inside";
  if (from === "host") return "up";
  return to === "host" ? "down" : "peer";
}

// Slices that the table counts as one and that have one colour: of the same name and category; copies of the same array
// and way.
const groups = [];
const group_numbers = new Map();
function group_of(name, category, task, array, from, to) {
  const way = category === "copy" ? way_of(from, to) : "";
  const label = category === "copy" && array !== null ? String(array) : name;
  const key = JSON.stringify([category, way, label]);
  let group = group_numbers.get(key);
  if (group === undefined) {
    group = groups.length;
    group_numbers.set(key, group);
    groups.push({label, category, way, of_task: task !== null, count: 0, total: 0, colour: 0});
  }
  return group;
}

// Slices one after the other, never two at a time: a lane at a depth.
function new_track(count) {
  return {
    count,
    begin: new Float64Array(count),
    end: new Float64Array(count),
    name: new Uint32Array(count),
    group: new Uint32Array(count),
    task: new Float64Array(count).fill(-1),
    place: new Uint32Array(count),
    bytes: null,
    busy: new Float64Array(count + 1),
    matches: null,
  };
}

function finish_track(track) {
  for (let i = 0; i < track.count; i++) track.busy[i + 1] = track.busy[i] + track.end[i] - track.begin[i];
  return track;
}

function read_track(about) {
  const track = new_track(about.count);
  const known = new Map();
  let time = head.begin_ns;
  for (let i = 0; i < about.count; i++) {
    time += number();
    track.begin[i] = time;
    track.end[i] = time + number();
    track.name[i] = number();
    const category = number();
    track.place[i] = at;
    const [task, array, size, from, to] = skim_arguments();
    if (task !== null) track.task[i] = task;
    if (texts[category] === "copy") {
      if (track.bytes === null) track.bytes = new Float64Array(about.count);
      track.bytes[i] = size;
      track.group[i] = group_of(texts[track.name[i]], "copy", task, array, from, to);
    } else {
      const key = track.name[i] * texts.length + category;
      let group = known.get(key);
      if (group === undefined)
        known.set(key, group = group_of(texts[track.name[i]], texts[category], task, null, null, null));
      track.group[i] = group;
    }
    const sum = groups[track.group[i]];
    sum.count++;
    sum.total += track.end[i] - time;
  }
  return finish_track(track);
}

// A counter: its times, and for each key the value from that time on.
function read_series(about) {
  const series =
      {process: about.process, name: about.name, count: about.count, time: new Float64Array(about.count), keys: []};
  const columns = new Map();
  let time = head.begin_ns;
  for (let i = 0; i < about.count; i++) {
    time += number();
    series.time[i] = time;
    for (const [key, kind] of head.shapes[number()]) {
      if (!columns.has(key)) columns.set(key, new Float64Array(about.count).fill(NaN));
      columns.get(key)[i] = argument_value(kind);
    }
  }
  for (const [key, values] of columns) {
    let last = 0;
    let most = 0;
    for (let i = 0; i < about.count; i++) {
      last = values[i] = Number.isNaN(values[i]) ? last : values[i];
      most = Math.max(most, last);
    }
    series.keys.push({key, values, most});
  }
  series.most = Math.max(1, ...series.keys.map((k) => k.most));
  return series;
}

function read_waits() {
  const list = [];
  let time = head.begin_ns;
  for (let i = 0; i < head.waits; i++) {
    time += number();
    const wait = {begin: time, end: time + number(), process: number(), name: number(), category: texts[number()]};
    wait.id = signed();
    wait.place = at;
    wait.task = skim_arguments()[0] ?? -1;
    list.push(wait);
  }
  return list;
}

function read_marks() {
  const list = [];
  let time = head.begin_ns;
  for (let i = 0; i < head.marks; i++) {
    time += number();
    const mark = {time, process: number(), name: number(), category: texts[number()], place: at};
    mark.task = skim_arguments()[0] ?? -1;
    list.push(mark);
  }
  for (const mark of list)
    mark.saved = arguments_at(mark.place).some(([key, value]) => key === "saved" && value === true);
  return list;
}

// The longest waits side by side in a few rows. Those that find no room are in the curve of how many wait, in the table
// and in the life of their task.
const most_wait_rows = 4;
const most_packed_waits = 20000;
function pack_waits(list) {
  const packed = [];
  const longest_first = [...list].sort((a, b) => b.end - b.begin - (a.end - a.begin));
  for (const wait of longest_first.slice(0, most_packed_waits)) {
    if (!packed.some((row) => put_into(row, wait)) && packed.length < most_wait_rows) packed.push([wait]);
  }
  return packed.map(wait_track);
}

// Puts the wait where it belongs in a row that is sorted, if there is room.
function put_into(row, wait) {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle].begin < wait.begin)
      low = middle + 1;
    else
      high = middle;
  }
  const free = (low === 0 || row[low - 1].end <= wait.begin) && (low === row.length || wait.end <= row[low].begin);
  if (free) row.splice(low, 0, wait);
  return free;
}

// How many wait at a time, as a counter.
function count_waits(process, name, list) {
  const begins = Float64Array.from(list, (wait) => wait.begin);
  const ends = Float64Array.from(list, (wait) => wait.end).sort();
  const series = {process, name, count: 2 * list.length, time: new Float64Array(2 * list.length)};
  const values = new Float64Array(2 * list.length);
  let most = 0;
  for (let i = 0, b = 0, e = 0; i < series.count; i++) {
    const starts = b < list.length && begins[b] <= ends[e];
    series.time[i] = starts ? begins[b++] : ends[e++];
    values[i] = b - e;
    most = Math.max(most, b - e);
  }
  return Object.assign(series, {keys: [{key: "tasks", values, most}], most});
}

function wait_track(waits) {
  const track = new_track(waits.length);
  track.waits = waits;
  waits.forEach((wait, i) => {
    track.begin[i] = wait.begin;
    track.end[i] = wait.end;
    track.name[i] = wait.name;
    track.group[i] = wait.group;
    track.task[i] = wait.task;
    track.place[i] = wait.place;
  });
  return finish_track(track);
}

const tracks = head.tracks.map((about) => Object.assign(read_track(about), {lane: about.lane, depth: about.depth}));
const all_series = head.series.map(read_series);
const waits = read_waits();
for (const wait of waits) {
  wait.group = group_of(wait.category, wait.category, null, null, null, null);
  groups[wait.group].total += wait.end - wait.begin;
}
const marks = read_marks();

// The first index whose value in the sorted `list` is at least `value`.
function first_at_least(list, value, low = 0) {
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// The slices of a track that touch [from, to): first and one past the last.
function visible(track, from, to) {
  let first = first_at_least(track.begin, from);
  if (first > 0 && track.end[first - 1] > from) first--;
  return [first, first_at_least(track.begin, to, first)];
}

// How long the track was busy in [from, to).
function busy_time(track, from, to) {
  const [first, last] = visible(track, from, to);
  if (first >= last) return 0;
  const before = Math.max(0, from - track.begin[first]);
  const after = Math.max(0, track.end[last - 1] - to);
  return track.busy[last] - track.busy[first] - before - after;
}
